"""Secrets of fleet.yaml that are not an engine's own do not reach its plugins."""

from fleet.clouds.cloud import withheld_variables
from tests.builders import a_fleet

QUEUE = {
    "kind": "debusine",
    "url": "https://debusine.example.org",
    "scopes": ["debian"],
    "token": {"env": "QUEUE_TOKEN"},
}

PROVIDERS = {"hetzner": {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}}}


def test_variable_with_secret_of_another_part_is_emptied() -> None:
    fleet = a_fleet(queues={"debian": QUEUE})

    assert withheld_variables(fleet, {"QUEUE_TOKEN": "made up", "HOME": "/root"}) == {
        "QUEUE_TOKEN": ""
    }


def test_plugins_receive_no_password_of_fleet_yaml() -> None:
    commands = {"new": ["./new"], "delete": ["./delete"], "list": ["./list"]}
    names = ["CLOUD_PASSWORD", "HOME", "https_proxy", "AWS_PROFILE"]
    own = {"kind": "hooks", **commands, "environment": names}
    fleet = a_fleet(providers={**PROVIDERS, "own": own})

    emptied = withheld_variables(fleet, {"HOME": "/root", **dict.fromkeys(names, "made up")})

    assert emptied == {"CLOUD_PASSWORD": ""}


def test_withheld_variables_omit_unset_ones() -> None:
    assert withheld_variables(a_fleet(queues={"debian": QUEUE}), {"HOME": "/root"}) == {}


def test_withheld_variables_keep_those_of_engines() -> None:
    passphrase = {"passphrase": {"env": "PULUMI_CONFIG_PASSPHRASE"}}
    fleet = a_fleet(state=passphrase)

    assert withheld_variables(fleet, {"PULUMI_CONFIG_PASSPHRASE": "made up"}) == {}
