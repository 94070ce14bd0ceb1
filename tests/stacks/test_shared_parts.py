"""What the programs of AWS and Hetzner declare for the parts that machines share, and of each."""

import json
from typing import Any

import pytest

from fleet.engines.projects import Resource
from fleet.errors import PlanRefused
from tests.stacks.programs import a_worker_of, accepted, declared

OURS = {"fleet": "debian"}
NETWORK = {"name": "net", "ip_range": "10.0.0.0/16", "zone": "eu-central", "labels": OURS}
RULE = {"direction": "in", "protocol": "tcp", "port": "22", "ips": ["192.0.2.0/24"]}
FIREWALL = {"name": "wall", "rules": [RULE], "labels": OURS}
SSH_KEY = {"name": "key", "public_key": "ssh-ed25519 AAAA", "labels": OURS}
TEMPLATE: dict[str, Any] = {
    "name": "debian-amazon-0123",
    "vpc": "",
    "key_pair": "",
    "ssh_from": [],
    "labels": OURS,
}


def an_instance(**settings: str) -> dict[str, Any]:
    worker = a_worker_of("aws", settings={"template": "debian-amazon-0123"} | settings)
    (instance,) = declared("aws", accepted("aws", worker))
    return dict(instance.inputs)


def shared(**overrides: object) -> dict[str, Resource]:
    """Return what a base stack at AWS declares, by the last word of its type."""
    template = TEMPLATE | overrides
    resources = declared("aws", accepted("aws", workers=[], templates=[template]))
    return {each.type.rpartition(":")[2]: each for each in resources}


def test_server_has_networks_firewalls_and_keys_of_settings() -> None:
    settings = {"network_ids": "7", "firewall_ids": "8 9", "ssh_keys": "key other"}
    worker = a_worker_of("hcloud", settings=settings | {"location": "fsn1"})
    (server,) = declared("hcloud", accepted("hcloud", worker))

    assert server.inputs["networks"] == [{"networkId": 7, "aliasIps": []}]
    assert server.inputs["firewallIds"] == [8, 9]
    assert server.inputs["sshKeys"] == ["key", "other"]


def test_hcloud_base_has_shared_resources_only() -> None:
    parts = {"networks": [NETWORK], "firewalls": [FIREWALL], "ssh_keys": [SSH_KEY]}
    resources = declared("hcloud", accepted("hcloud", workers=[], **parts))

    found = {each.name: each for each in resources}
    kinds = [(each.type.rpartition(":")[2], each.name) for each in resources]
    assert kinds == [
        *(("Firewall", "wall"), ("Network", "net")),
        *(("NetworkSubnet", "net-subnet"), ("SshKey", "key")),
    ]
    assert all(each.inputs["labels"] == OURS for each in resources if "labels" in each.inputs)
    assert found["wall"].inputs["rules"] == [
        {"direction": "in", "protocol": "tcp", "port": "22", "sourceIps": ["192.0.2.0/24"]}
    ]


def test_instance_terminates_with_its_encrypted_disk() -> None:
    inputs, spot = an_instance(disk="344"), an_instance(market="spot")
    disk = dict(inputs["rootBlockDevice"])

    assert inputs["instanceInitiatedShutdownBehavior"] == "terminate"
    assert inputs["launchTemplate"] == {"name": "debian-amazon-0123", "version": "1"}
    assert "instanceMarketOptions" not in inputs
    once = {"instanceInterruptionBehavior": "terminate", "spotInstanceType": "one-time"}
    assert spot["instanceMarketOptions"] == {"marketType": "spot", "spotOptions": once}
    assert disk.pop("tags")["fleet"] == "debian"
    assert disk == {
        "volumeSize": 344,
        "volumeType": "gp3",
        "encrypted": True,
        "deleteOnTermination": True,
    }


def test_aws_base_has_shared_resources_only() -> None:
    resources = shared()

    assert sorted(resources) == ["InstanceProfile", "LaunchTemplate", "Role", "SecurityGroup"]
    assert all(each.inputs["tags"]["fleet"] == "debian" for each in resources.values())
    template = resources["LaunchTemplate"].inputs
    assert template["metadataOptions"]["httpTokens"] == "required"
    assert template["instanceInitiatedShutdownBehavior"] == "terminate"
    role = resources["Role"].inputs  # no machine has rights at AWS
    (statement,) = json.loads(role["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": "ec2.amazonaws.com"}
    assert not {"inlinePolicies", "managedPolicyArns"} & role.keys()


def test_security_group_permits_only_named_addresses_in_named_network() -> None:
    closed, opened = shared(), shared(key_pair="ops", ssh_from=["192.0.2.0/24"], vpc="vpc-1")

    assert closed["SecurityGroup"].inputs["ingress"] == []
    assert "vpcId" not in closed["SecurityGroup"].inputs
    assert opened["SecurityGroup"].inputs["vpcId"] == "vpc-1"
    assert opened["SecurityGroup"].inputs["ingress"] == [
        {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": ["192.0.2.0/24"]}
    ]
    assert opened["LaunchTemplate"].inputs["keyName"] == "ops"


@pytest.mark.parametrize(
    ("project", "broken", "says"),
    [
        ("aws", {"templates": [{}]}, r"templates\[0\] lacks key_pair, labels, name, ssh_from"),
        ("aws", {"templates": ["one"]}, r"templates\[0\] must be a mapping"),
        ("aws", {"templates": [TEMPLATE | {"labels": {}}]}, r"templates\[0\].labels lacks fleet"),
        ("aws", {"templates": [TEMPLATE | {"x": 1}]}, r"templates\[0\] has unknown keys: x"),
        ("aws", {"templates": [TEMPLATE | {"ssh_from": ""}]}, r"\.ssh_from must be a list"),
        ("hcloud", {"networks": [{}]}, r"networks\[0\] lacks ip_range, labels, name, zone"),
        ("hcloud", {"ssh_keys": ["key"]}, r"ssh_keys\[0\] must be a mapping"),
        ("hcloud", {"ssh_keys": [SSH_KEY | {"labels": {}}]}, r"ssh_keys\[0\].labels lacks fleet"),
        ("hcloud", {"firewalls": [FIREWALL | {"rules": [{}]}]}, r"\[0\].rules\[0\] lacks"),
        ("hcloud", {"firewalls": [FIREWALL | {"x": 1}]}, r"\[0\] has unknown keys: x"),
    ],
)
def test_invalid_shared_parts_are_refused_with_path(
    project: str, broken: dict[str, object], says: str
) -> None:
    with pytest.raises(PlanRefused, match=says):
        declared(project, accepted(project, workers=[], **broken))
