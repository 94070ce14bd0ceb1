"""What the Hetzner program declares beside workers, and how it keeps secrets."""

import pytest

from fleet.engines.projects import load_project
from fleet.errors import PlanRefused
from fleet.model.facts import WorkerInputs
from tests.stacks.programs import a_worker_of, accepted, declared

OURS = {"fleet": "debian"}
NETWORK = {"name": "net", "ip_range": "10.0.0.0/16", "zone": "eu-central", "labels": OURS}
RULE = {"direction": "in", "protocol": "tcp", "port": "22", "ips": ["192.0.2.0/24"]}
FIREWALL = {"name": "wall", "rules": [RULE], "labels": OURS}
SSH_KEY = {"name": "key", "public_key": "ssh-ed25519 AAAA", "labels": OURS}


def test_user_data_is_a_secret_in_the_stack() -> None:
    (server,) = declared("hcloud", accepted("hcloud"))

    assert server.secrets == ("userData",)
    assert "of-the-test" not in server.model_dump_json()


def test_existing_server_is_declared_without_user_data() -> None:
    (server,) = declared("hcloud", accepted("hcloud", user_data={}))

    assert "userData" not in server.inputs


def test_adopted_server_is_declared_without_user_data() -> None:
    (server,) = declared("hcloud", accepted("hcloud", adopt={"debian-big-0001": "42"}))

    assert (server.adopts, server.secrets) == ("42", ())


def test_notes_of_server_are_not_worker_inputs() -> None:
    notes = {"expires": "20261122T090000Z", "commit": "0123456"}

    (server,) = declared("hcloud", accepted("hcloud", notes=notes))

    read_back = load_project("hcloud").worker_of(server.type, server.inputs)
    assert notes.items() <= server.inputs["labels"].items()
    assert read_back == WorkerInputs.model_validate(a_worker_of("hcloud"))


def test_server_has_networks_firewalls_and_keys_of_settings() -> None:
    settings = {
        "location": "fsn1",
        "network_ids": "7",
        "firewall_ids": "8 9",
        "ssh_keys": "key other",
    }
    worker = a_worker_of("hcloud", settings=settings)

    (server,) = declared("hcloud", accepted("hcloud", worker))

    assert server.inputs["networks"] == [{"networkId": 7, "aliasIps": []}]
    assert server.inputs["firewallIds"] == [8, 9]
    assert server.inputs["sshKeys"] == ["key", "other"]
    read_back = load_project("hcloud").worker_of(server.type, server.inputs)
    assert read_back == WorkerInputs.model_validate(worker)


def test_hcloud_base_has_shared_resources_only() -> None:
    resources = declared(
        "hcloud",
        accepted(
            "hcloud", workers=[], networks=[NETWORK], firewalls=[FIREWALL], ssh_keys=[SSH_KEY]
        ),
    )

    assert [(each.type.rpartition(":")[2], each.name) for each in resources] == [
        ("Firewall", "wall"),
        ("Network", "net"),
        ("NetworkSubnet", "net-subnet"),
        ("SshKey", "key"),
    ]
    assert all(each.inputs["labels"] == OURS for each in resources if "labels" in each.inputs)


def test_firewall_rule_permits_named_addresses() -> None:
    (firewall,) = declared("hcloud", accepted("hcloud", workers=[], firewalls=[FIREWALL]))

    assert firewall.inputs["rules"] == [
        {"direction": "in", "protocol": "tcp", "port": "22", "sourceIps": ["192.0.2.0/24"]}
    ]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, r"workers\[0\].settings lacks location"),
        ({"location": "fsn1", "size": "1"}, "settings has unknown keys: size"),
        ({"location": "fsn1", "network_ids": "net"}, "network_ids must hold ids"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(PlanRefused, match=says):
        declared("hcloud", accepted("hcloud", a_worker_of("hcloud", settings=settings)))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"networks": [{}]}, r"networks\[0\] lacks ip_range, labels, name, zone"),
        ({"ssh_keys": ["key"]}, r"ssh_keys\[0\] must be a mapping"),
        ({"ssh_keys": [SSH_KEY | {"labels": {}}]}, r"ssh_keys\[0\].labels lacks fleet"),
        ({"firewalls": [FIREWALL | {"rules": [{}]}]}, r"firewalls\[0\].rules\[0\] lacks"),
        ({"firewalls": [FIREWALL | {"x": 1}]}, r"firewalls\[0\] has unknown keys: x"),
    ],
)
def test_invalid_shared_parts_are_refused_with_path(broken: dict[str, object], says: str) -> None:
    with pytest.raises(PlanRefused, match=says):
        declared("hcloud", accepted("hcloud", workers=[], **broken))
