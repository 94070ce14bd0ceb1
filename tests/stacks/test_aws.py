"""What the AWS program declares beside workers, and how it keeps secrets."""

import json
from typing import Any

import pytest

from fleet.engines.projects import Resource, load_project
from fleet.errors import PlanRefused
from fleet.model.facts import WorkerInputs
from tests.stacks.programs import a_worker_of, accepted, declared

SETTINGS = {"template": "debian-amazon-0123"}
TEMPLATE: dict[str, Any] = {
    "name": "debian-amazon-0123",
    "vpc": "",
    "key_pair": "",
    "ssh_from": [],
    "labels": {"fleet": "debian"},
}


def an_instance(**settings: str) -> Resource:
    worker = a_worker_of("aws", settings=SETTINGS | settings)
    (instance,) = declared("aws", accepted("aws", worker))
    return instance


def shared(**overrides: object) -> dict[str, Resource]:
    """Return what a base stack declares, by the last word of its type."""
    template = TEMPLATE | overrides
    resources = declared("aws", accepted("aws", workers=[], templates=[template]))
    return {each.type.rpartition(":")[2]: each for each in resources}


def test_user_data_is_a_secret_in_the_stack() -> None:
    instance = an_instance()

    assert instance.secrets == ("userData",)
    assert "of-the-test" not in instance.model_dump_json()


def test_existing_instance_is_declared_without_user_data() -> None:
    (instance,) = declared("aws", accepted("aws", user_data={}))

    assert "userData" not in instance.inputs


def test_adopted_instance_is_declared_without_user_data() -> None:
    (instance,) = declared("aws", accepted("aws", adopt={"debian-big-0001": "i-1"}))

    assert (instance.adopts, instance.secrets) == ("i-1", ())


def test_notes_of_instance_are_not_worker_inputs() -> None:
    notes = {"expires": "20261122T090000Z", "commit": "0123456"}

    (instance,) = declared("aws", accepted("aws", notes=notes))

    read_back = load_project("aws").worker_of(instance.type, instance.inputs)
    assert instance.inputs["tags"]["fleet:expires"] == "20261122T090000Z"
    assert instance.inputs["tags"]["fleet:commit"] == "0123456"
    assert read_back == WorkerInputs.model_validate(a_worker_of("aws"))


def test_instance_terminates_on_shutdown() -> None:
    assert an_instance().inputs["instanceInitiatedShutdownBehavior"] == "terminate"


def test_instance_uses_only_version_of_its_template() -> None:
    template = an_instance().inputs["launchTemplate"]

    assert template == {"name": "debian-amazon-0123", "version": "1"}


def test_instance_is_on_demand_by_default() -> None:
    assert "instanceMarketOptions" not in an_instance().inputs


def test_spot_instance_is_one_time_and_terminates() -> None:
    assert an_instance(market="spot").inputs["instanceMarketOptions"] == {
        "marketType": "spot",
        "spotOptions": {
            "instanceInterruptionBehavior": "terminate",
            "spotInstanceType": "one-time",
        },
    }


def test_disk_is_encrypted_labelled_and_deleted_with_instance() -> None:
    disk = an_instance(disk="344").inputs["rootBlockDevice"]

    assert disk.pop("tags")["fleet"] == "debian"
    assert disk == {
        "volumeSize": 344,
        "volumeType": "gp3",
        "encrypted": True,
        "deleteOnTermination": True,
    }


def test_instance_inputs_round_trip() -> None:
    settings = SETTINGS | {"subnet": "subnet-1", "disk": "344", "market": "spot"}
    worker = a_worker_of("aws", settings=settings)

    instance = an_instance(**settings)

    read_back = load_project("aws").worker_of(instance.type, instance.inputs)
    assert read_back == WorkerInputs.model_validate(worker)


def test_aws_base_has_shared_resources_only() -> None:
    resources = shared()

    assert sorted(resources) == ["InstanceProfile", "LaunchTemplate", "Role", "SecurityGroup"]
    assert all(each.inputs["tags"]["fleet"] == "debian" for each in resources.values())


def test_template_requires_session_tokens_for_metadata() -> None:
    template = shared()["LaunchTemplate"].inputs

    assert template["metadataOptions"]["httpTokens"] == "required"
    assert template["instanceInitiatedShutdownBehavior"] == "terminate"


def test_machines_have_no_rights_at_aws() -> None:
    role = shared()["Role"].inputs

    (statement,) = json.loads(role["assumeRolePolicy"])["Statement"]
    assert statement["Principal"] == {"Service": "ec2.amazonaws.com"}
    assert "inlinePolicies" not in role
    assert "managedPolicyArns" not in role


def test_security_group_is_closed_by_default() -> None:
    assert shared()["SecurityGroup"].inputs["ingress"] == []


def test_security_group_permits_ssh_from_named_addresses() -> None:
    resources = shared(key_pair="ops", ssh_from=["192.0.2.0/24"])

    assert resources["SecurityGroup"].inputs["ingress"] == [
        {"protocol": "tcp", "fromPort": 22, "toPort": 22, "cidrBlocks": ["192.0.2.0/24"]}
    ]
    assert resources["LaunchTemplate"].inputs["keyName"] == "ops"


def test_security_group_is_in_named_network() -> None:
    assert shared(vpc="vpc-1")["SecurityGroup"].inputs["vpcId"] == "vpc-1"
    assert "vpcId" not in shared()["SecurityGroup"].inputs


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, r"workers\[0\].settings lacks template"),
        (SETTINGS | {"size": "1"}, "settings has unknown keys: size"),
        (SETTINGS | {"disk": "big"}, "debian-big-0001: disk must be whole GiB, not big"),
        (SETTINGS | {"market": "black"}, "debian-big-0001: market must be spot or on-demand"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], says: str) -> None:
    with pytest.raises(PlanRefused, match=says):
        declared("aws", accepted("aws", a_worker_of("aws", settings=settings)))


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"templates": [{}]}, r"templates\[0\] lacks key_pair, labels, name, ssh_from, vpc"),
        ({"templates": ["one"]}, r"templates\[0\] must be a mapping"),
        ({"templates": [TEMPLATE | {"labels": {}}]}, r"templates\[0\].labels lacks fleet"),
        ({"templates": [TEMPLATE | {"x": 1}]}, r"templates\[0\] has unknown keys: x"),
        ({"templates": [TEMPLATE | {"ssh_from": ""}]}, r"templates\[0\].ssh_from must be a list"),
    ],
)
def test_invalid_shared_parts_are_refused_with_path(broken: dict[str, object], says: str) -> None:
    with pytest.raises(PlanRefused, match=says):
        declared("aws", accepted("aws", workers=[], **broken))
