"""The real engine makes machines of stacks/aws, with a double of Pulumi's provider and moto."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.errors import StackFailed
from fleet.model.facts import Base
from fleet.planner.failures import classify
from fleet.planner.shared_stacks import parts_of
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


def test_instance_has_settings_of_its_worker_until_deleted(rig: AwsRig) -> None:
    rig.up(a_worker(1, market="spot"))

    ((machine, made),) = rig.instances().items()
    (disk,) = rig.amazon.ask("describe_volumes")["Volumes"]

    def attribute(name: str) -> str:
        found = rig.amazon.ask("describe_instance_attribute", InstanceId=machine, Attribute=name)
        return str(found[f"{name[0].upper()}{name[1:]}"]["Value"])

    assert (made["InstanceLifecycle"], made["KeyName"]) == ("spot", "ops")
    assert (disk["Size"], disk["Encrypted"], disk["VolumeType"]) == (40, True, "gp3")
    assert attribute("instanceInitiatedShutdownBehavior") == "terminate"
    assert base64.b64decode(attribute("userData")).decode() == USER_DATA
    assert {"Key": "fleet", "Value": "debian"} in disk["Tags"]
    rig.cloud.extend([machine], NOW)
    notes = {"expires": "20261122T090000Z"}
    worker = a_worker(1, market="spot")
    assert rig.engine(notes=notes).preview(REF, [worker]) == ()

    rig.up()

    assert (rig.machines(), rig.amazon.ask("describe_volumes")["Volumes"]) == ([], [])


def test_template_is_created_once_and_deleted_when_unused(rig: AwsRig) -> None:
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

    rig.up()
    rig.base().up(BASE, [], quiet)

    base = rig.base().read(BASE)
    assert isinstance(base, Base)
    assert base.ids == {}
    groups = rig.amazon.ask("describe_security_groups")["SecurityGroups"]
    assert {group["GroupName"] for group in groups} == {"default"}
