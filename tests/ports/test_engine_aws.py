"""The real engine makes machines of stacks/aws, with a double of Pulumi's provider and moto."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.errors import StackFailed
from fleet.model.facts import Base
from fleet.planner.failures import classify
from fleet.planner.shared_stacks import parts_of
from fleet.ports import StackStep
from tests.builders import NOW, a_fleet
from tests.fakes.aws import PROVIDER, tag_list
from tests.ports.aws_rig import REF, USER_DATA, AwsRig, a_worker, an_aws_rig
from tests.ports.engines import quiet

pytestmark = pytest.mark.engine

BASE = REF.altered(name="debian.amazon", pool="")
FLEET = a_fleet(
    fleet="debian",
    providers={"amazon": {"kind": "aws", "region": PROVIDER.region}},
    pools={},
)


ONE, TWO, THREE = map(a_worker, (1, 2, 3))


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsRig]:
    with an_aws_rig(tmp_path, monkeypatch) as rig:
        yield rig


def test_second_up_creates_no_instance(rig: AwsRig) -> None:
    first = rig.up(ONE, TWO)

    second = rig.engine().up(REF, (ONE, TWO), quiet)

    assert first == tuple(StackStep(worker=each.name, operation="create") for each in (ONE, TWO))
    assert second == ()
    assert rig.machines() == [ONE.name, TWO.name]


def test_instance_has_settings_and_labels_of_its_worker(rig: AwsRig) -> None:
    rig.up(a_worker(1, market="spot"))

    ((machine, made),) = rig.instances().items()
    (disk,) = rig.amazon.ask("describe_volumes")["Volumes"]
    behaviour = rig.amazon.ask(
        "describe_instance_attribute",
        InstanceId=machine,
        Attribute="instanceInitiatedShutdownBehavior",
    )["InstanceInitiatedShutdownBehavior"]
    user_data = rig.amazon.ask(
        "describe_instance_attribute", InstanceId=machine, Attribute="userData"
    )["UserData"]["Value"]
    assert (made["InstanceLifecycle"], made["KeyName"]) == ("spot", "ops")
    assert (disk["Size"], disk["Encrypted"], disk["VolumeType"]) == (40, True, "gp3")
    assert behaviour == {"Value": "terminate"}
    assert base64.b64decode(user_data).decode() == USER_DATA
    assert {"Key": "fleet", "Value": "debian"} in disk["Tags"]


def test_expiry_tag_is_not_a_difference(rig: AwsRig) -> None:
    rig.up(ONE)
    (machine,) = rig.listed()
    rig.cloud.extend([machine.id], NOW)

    assert rig.engine(notes={"expires": "20261122T090000Z"}).preview(REF, [ONE]) == ()


def test_emptied_pool_leaves_no_instance(rig: AwsRig) -> None:
    rig.up(ONE, TWO)

    rig.up()

    assert rig.machines() == []
    assert rig.amazon.ask("describe_volumes")["Volumes"] == []


def test_spot_machine_is_created_on_demand_when_out_of_stock(rig: AwsRig) -> None:
    rig.goes_wrong(spot="InsufficientInstanceCapacity")

    with pytest.raises(StackFailed) as failed:
        rig.up(a_worker(1, market="spot"))
    rig.up(ONE)

    assert classify(failed.value.failed[ONE.name]) == "out-of-stock"
    (made,) = rig.instances().values()
    assert "InstanceLifecycle" not in made


def test_spot_instance_with_lost_reply_is_adopted(rig: AwsRig) -> None:
    worker = a_worker(1, market="spot")
    rig.goes_wrong(lose_answer_of=worker.name)

    rig.up(worker)

    assert rig.recorded().workers == (worker,)
    assert rig.engine().preview(REF, [worker]) == ()


def test_instance_of_killed_engine_is_adopted_by_its_label(rig: AwsRig) -> None:
    rig.goes_wrong(kill_after=ONE.name)
    with pytest.raises(StackFailed):
        rig.up(ONE)
    rig.goes_wrong()
    (lost,) = rig.listed()

    rig.up(ONE, TWO)

    assert rig.machines() == [ONE.name, TWO.name]
    assert rig.recorded().ids[ONE.name] == lost.id


def test_template_is_created_once_and_used_by_instance(rig: AwsRig) -> None:
    (part,) = parts_of(FLEET, "amazon")

    rig.base().up(BASE, [part], quiet)
    again = rig.base().preview(BASE, [part])
    rig.up(a_worker(1, template=part.name))

    base = rig.base().read(BASE)
    (machine,) = rig.instances().values()
    tags = {tag["Key"]: tag["Value"] for tag in machine["Tags"]}
    (group,) = machine["SecurityGroups"]
    assert isinstance(base, Base)
    assert again == ()
    assert tags["aws:ec2launchtemplate:id"] == base.ids[part.key]
    assert group["GroupName"] == part.name


def test_unrecorded_template_is_created_again(rig: AwsRig) -> None:
    (part,) = parts_of(FLEET, "amazon")
    rig.base().up(BASE, [], quiet)
    mark = {"ResourceType": "security-group", "Tags": tag_list({"fleet": "debian"})}
    rig.amazon.ask(
        "create_security_group", GroupName=part.name, Description="x", TagSpecifications=[mark]
    )

    rig.base().up(BASE, [part], quiet)

    base = rig.base().read(BASE)
    assert isinstance(base, Base)
    assert (base.laid, list(base.ids)) == (True, [part.key])


def test_unused_template_is_deleted(rig: AwsRig) -> None:
    (part,) = parts_of(FLEET, "amazon")
    rig.base().up(BASE, [part], quiet)

    rig.base().up(BASE, [], quiet)

    base = rig.base().read(BASE)
    assert isinstance(base, Base)
    assert base.ids == {}
    groups = rig.amazon.ask("describe_security_groups")["SecurityGroups"]
    assert {group["GroupName"] for group in groups} == {"default"}
