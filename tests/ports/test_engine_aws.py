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


def test_workers_are_made_once(rig: AwsRig) -> None:
    first = rig.up(ONE, TWO)

    second = rig.engine().up(REF, (ONE, TWO), quiet)

    assert first == tuple(StackStep(worker=each.name, operation="create") for each in (ONE, TWO))
    assert second == ()
    assert rig.machines() == [ONE.name, TWO.name]


def test_removing_one_and_adding_one_touches_only_these(rig: AwsRig) -> None:
    rig.up(ONE, TWO)
    kept = {each.id for each in rig.listed() if each.name == TWO.name}

    steps = rig.up(TWO, THREE)

    assert steps == (
        StackStep(worker=ONE.name, operation="delete"),
        StackStep(worker=THREE.name, operation="create"),
    )
    assert rig.machines() == [TWO.name, THREE.name]
    assert kept <= {each.id for each in rig.listed()}


def test_a_machine_is_what_its_worker_says(rig: AwsRig) -> None:
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


def test_what_is_noted_at_a_machine_is_no_difference(rig: AwsRig) -> None:
    rig.up(ONE)
    (machine,) = rig.listed()
    rig.cloud.extend([machine.id], NOW)

    assert rig.engine(notes={"expires": "20261122T090000Z"}).preview(REF, [ONE]) == ()


def test_an_emptied_pool_holds_nothing_and_costs_nothing(rig: AwsRig) -> None:
    rig.up(ONE, TWO)

    rig.up()

    assert rig.machines() == []
    assert rig.amazon.ask("describe_volumes")["Volumes"] == []


def test_one_that_cannot_be_made_leaves_the_others(rig: AwsRig) -> None:
    rig.goes_wrong(refuse={TWO.name: "VcpuLimitExceeded"})

    with pytest.raises(StackFailed) as failed:
        rig.up(ONE, TWO, THREE)

    assert rig.machines() == [ONE.name, THREE.name]
    assert sorted(failed.value.done) == [ONE.name, THREE.name]
    assert classify(failed.value.failed[TWO.name]) == "quota"


def test_what_spot_has_none_of_is_made_on_demand_under_the_same_name(rig: AwsRig) -> None:
    rig.goes_wrong(spot="InsufficientInstanceCapacity")

    with pytest.raises(StackFailed) as failed:
        rig.up(a_worker(1, market="spot"))
    rig.up(ONE)

    assert classify(failed.value.failed[ONE.name]) == "out-of-stock"
    (made,) = rig.instances().values()
    assert "InstanceLifecycle" not in made


def test_a_machine_whose_answer_was_lost_is_adopted_at_once(rig: AwsRig) -> None:
    rig.goes_wrong(lose_answer_of=ONE.name)

    rig.up(ONE)

    (machine,) = rig.listed()
    assert rig.recorded().ids == {ONE.name: machine.id}


def test_a_spot_machine_whose_answer_was_lost_is_adopted_as_one(rig: AwsRig) -> None:
    worker = a_worker(1, market="spot")
    rig.goes_wrong(lose_answer_of=worker.name)

    rig.up(worker)

    assert rig.recorded().workers == (worker,)
    assert rig.engine().preview(REF, [worker]) == ()


def test_a_machine_whose_engine_was_killed_is_found_by_its_mark(rig: AwsRig) -> None:
    rig.goes_wrong(kill_after=ONE.name)
    with pytest.raises(StackFailed):
        rig.up(ONE)
    rig.goes_wrong()
    (lost,) = rig.listed()

    rig.up(ONE, TWO)

    assert rig.machines() == [ONE.name, TWO.name]
    assert rig.recorded().ids[ONE.name] == lost.id


def test_what_machines_share_is_made_once_and_a_machine_is_made_from_it(rig: AwsRig) -> None:
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


def test_what_was_made_of_a_template_without_a_state_is_made_again(rig: AwsRig) -> None:
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


def test_what_nobody_shares_any_more_is_deleted(rig: AwsRig) -> None:
    (part,) = parts_of(FLEET, "amazon")
    rig.base().up(BASE, [part], quiet)

    rig.base().up(BASE, [], quiet)

    base = rig.base().read(BASE)
    assert isinstance(base, Base)
    assert base.ids == {}
    groups = rig.amazon.ask("describe_security_groups")["SecurityGroups"]
    assert {group["GroupName"] for group in groups} == {"default"}
