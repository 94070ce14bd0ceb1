"""The real engine makes machines of stacks/aws, with a double of Pulumi's provider and moto."""

import base64
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fleet.bases import Base
from fleet.engines.pulumi import Account, PulumiEngine
from fleet.engines.pulumi_base import PulumiBase
from fleet.errors import StackFailed
from fleet.facts import Listing, Machine, Stack, WorkerInputs
from fleet.failures import classify
from fleet.ports import StackRef, Step
from fleet.providers.aws import AwsMachines
from fleet.shared import parts_of
from tests.builders import NOW, a_fleet
from tests.fake_aws import PROVIDER, Amazon, note_calls
from tests.ports.engines import quiet, skip_without_cli
from tests.process import ROOT

pytestmark = pytest.mark.engine

REF = StackRef(project="aws", name="debian-builders", provider="amazon", pool="builders")
BASE = REF.model_copy(update={"name": "debian.amazon", "pool": ""})
FLEET = a_fleet(
    fleet="debian",
    providers={"amazon": {"kind": "aws", "region": PROVIDER.region}},
    pools={},
)
USER_DATA = "#cloud-config token: of-the-test"


def a_worker(number: int, **settings: str) -> WorkerInputs:
    name = f"debian-builders-{number}"
    labels = {"fleet": "debian", "pool": "builders", "worker": name, "digest": "0123"}
    return WorkerInputs(
        name=name,
        type="c7a.2xlarge",
        image="ami-12345678",
        labels=labels,
        settings={"template": "debian-amazon-0123", "disk": "40"} | settings,
    )


ONE, TWO, THREE = map(a_worker, (1, 2, 3))


class Rig:
    """The real engine with an account at moto."""

    def __init__(self, folder: Path, amazon: Amazon) -> None:
        self.folder, self.amazon = folder, amazon
        self.cloud, self.calls = AwsMachines(PROVIDER), set[str]()
        note_calls(self.cloud, self.calls)
        plugins = folder / "home" / "plugins"
        plugins.mkdir(parents=True)
        launcher = plugins / "pulumi-resource-aws"
        launcher.write_text(
            f'#!/bin/sh\ncd {ROOT} && exec {sys.executable} -u -m tests.aws_plugin "$@"\n'
        )
        launcher.chmod(0o755)

    def engine(self, **inputs: object) -> PulumiEngine:
        account = Account(self.cloud, {"aws:region": PROVIDER.region}, inputs=inputs)
        return PulumiEngine(
            f"file://{self.folder / 'state'}",
            self.folder / "home",
            lambda: "a passphrase for tests",
            {"amazon": account},
        )

    def base(self) -> PulumiBase:
        account = Account(self.cloud, {"aws:region": PROVIDER.region})
        return PulumiBase(
            f"file://{self.folder / 'state'}",
            self.folder / "home",
            lambda: "a passphrase for tests",
            account,
            lambda _: {},
        )

    def up(self, *workers: WorkerInputs) -> tuple[Step, ...]:
        user_data = {worker.name: USER_DATA for worker in workers}
        return self.engine().up(REF, workers, quiet, user_data)

    def recorded(self) -> Stack:
        stack = self.engine().read(REF)
        assert isinstance(stack, Stack), stack
        return stack

    def goes_wrong(self, **faults: object) -> None:
        (self.folder / "faults.json").write_text(json.dumps(faults))

    def listed(self) -> tuple[Machine, ...]:
        listing = self.cloud.list("debian")
        assert isinstance(listing, Listing), listing
        return listing.machines

    def machines(self) -> list[str]:
        return [machine.name for machine in self.listed()]

    def instances(self) -> dict[str, Mapping[str, Any]]:
        reservations = self.amazon.ask("describe_instances")["Reservations"]
        return {each["InstanceId"]: each for part in reservations for each in part["Instances"]}


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    skip_without_cli()
    monkeypatch.setenv("FLEET_AWS_DOUBLE", str(tmp_path))
    with Amazon() as amazon:
        amazon.ask(
            "create_launch_template",
            LaunchTemplateName="debian-amazon-0123",
            LaunchTemplateData={"KeyName": "ops"},
        )
        yield Rig(tmp_path, amazon)


def test_workers_are_made_once(rig: Rig) -> None:
    first = rig.up(ONE, TWO)

    second = rig.engine().up(REF, (ONE, TWO), quiet)

    assert first == tuple(Step(worker=each.name, operation="create") for each in (ONE, TWO))
    assert second == ()
    assert rig.machines() == [ONE.name, TWO.name]


def test_removing_one_and_adding_one_touches_only_these(rig: Rig) -> None:
    rig.up(ONE, TWO)
    kept = {each.id for each in rig.listed() if each.name == TWO.name}

    steps = rig.up(TWO, THREE)

    assert steps == (
        Step(worker=ONE.name, operation="delete"),
        Step(worker=THREE.name, operation="create"),
    )
    assert rig.machines() == [TWO.name, THREE.name]
    assert kept <= {each.id for each in rig.listed()}


def test_a_machine_is_what_its_worker_says(rig: Rig) -> None:
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


def test_what_is_noted_at_a_machine_is_no_difference(rig: Rig) -> None:
    rig.up(ONE)
    (machine,) = rig.listed()
    rig.cloud.extend([machine.id], NOW)

    assert rig.engine(notes={"expires": "20261122T090000Z"}).preview(REF, [ONE]) == ()


def test_an_emptied_pool_holds_nothing_and_costs_nothing(rig: Rig) -> None:
    rig.up(ONE, TWO)

    rig.up()

    assert rig.machines() == []
    assert rig.amazon.ask("describe_volumes")["Volumes"] == []


def test_one_that_cannot_be_made_leaves_the_others(rig: Rig) -> None:
    rig.goes_wrong(refuse={TWO.name: "VcpuLimitExceeded"})

    with pytest.raises(StackFailed) as failed:
        rig.up(ONE, TWO, THREE)

    assert rig.machines() == [ONE.name, THREE.name]
    assert sorted(failed.value.done) == [ONE.name, THREE.name]
    assert classify(failed.value.failed[TWO.name]) == "quota"


def test_what_spot_has_none_of_is_made_on_demand_under_the_same_name(rig: Rig) -> None:
    rig.goes_wrong(spot="InsufficientInstanceCapacity")

    with pytest.raises(StackFailed) as failed:
        rig.up(a_worker(1, market="spot"))
    rig.up(ONE)

    assert classify(failed.value.failed[ONE.name]) == "out-of-stock"
    (made,) = rig.instances().values()
    assert "InstanceLifecycle" not in made


def test_a_machine_whose_answer_was_lost_is_adopted_at_once(rig: Rig) -> None:
    rig.goes_wrong(lose_answer_of=ONE.name)

    rig.up(ONE)

    (machine,) = rig.listed()
    assert rig.recorded().ids == {ONE.name: machine.id}


def test_a_machine_whose_engine_was_killed_is_found_by_its_mark(rig: Rig) -> None:
    rig.goes_wrong(kill_after=ONE.name)
    with pytest.raises(StackFailed):
        rig.up(ONE)
    rig.goes_wrong()
    (lost,) = rig.listed()

    rig.up(ONE, TWO)

    assert rig.machines() == [ONE.name, TWO.name]
    assert rig.recorded().ids[ONE.name] == lost.id


def test_what_machines_share_is_made_once_and_a_machine_is_made_from_it(rig: Rig) -> None:
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


def test_what_nobody_shares_any_more_is_deleted(rig: Rig) -> None:
    (part,) = parts_of(FLEET, "amazon")
    rig.base().up(BASE, [part], quiet)

    rig.base().up(BASE, [], quiet)

    base = rig.base().read(BASE)
    assert isinstance(base, Base)
    assert base.ids == {}
    groups = rig.amazon.ask("describe_security_groups")["SecurityGroups"]
    assert {group["GroupName"] for group in groups} == {"default"}
