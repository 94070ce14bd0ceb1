"""Drive the real engine with a double of Pulumi's AWS provider over moto."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.clouds.aws.machines import AwsMachines, AwsShared
from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi import PulumiBase, PulumiEngine
from fleet.errors import StackFailed
from fleet.model.facts import Listing, Machine, Stack, Unknown, WorkerInputs
from fleet.ports import NO_USER_DATA, Progress, StackChange, StackRef, StackStep
from tests.fakes.aws import PROVIDER, Amazon, install_double, note_calls
from tests.ports.engines import (
    a_sim_worker,
    id_in,
    names_in,
    quiet,
    sha256_of,
    skip_without_cli,
)

REF = StackRef(project="aws", name="debian-builders", provider="amazon", pool="builders")
TEMPLATE, IMAGE = "debian-amazon-0123", "ami-12345678"
TYPES = {"ccx33": "c7a.2xlarge", "ccx63": "c7a.8xlarge"}
"""What the contract's machine types are at AWS."""
USER_DATA = "#cloud-config token: of-the-test"


def a_worker(number: int, **settings: str) -> WorkerInputs:
    name = f"debian-builders-{number:04}"
    labels = {"fleet": "debian", "pool": "builders", "worker": name, "digest": "0123"}
    return WorkerInputs(
        name=name,
        type="c7a.2xlarge",
        image=IMAGE,
        labels=labels,
        settings={"template": TEMPLATE, "disk": "40"} | settings,
    )


def in_its_words(worker: WorkerInputs) -> WorkerInputs:
    """Return a worker of the contract as stacks/aws takes it."""
    settings = {"template": TEMPLATE, "disk": "40"}
    return worker.altered(type=TYPES[worker.type], image=IMAGE, settings=settings)


def in_ours(worker: WorkerInputs) -> WorkerInputs:
    """Return a worker of stacks/aws as the contract has declared it."""
    ours = a_sim_worker(worker.name)
    types = {theirs: each for each, theirs in TYPES.items()}
    return worker.altered(type=types[worker.type], image=ours.image, settings=ours.settings)


class AwsRig:
    """The real engine with an account at moto."""

    def __init__(self, folder: Path, amazon: Amazon) -> None:
        self.folder, self.amazon = folder, amazon
        self.cloud, self.calls = AwsMachines(PROVIDER), set[str]()
        note_calls(self.cloud, self.calls)
        plugins = folder / "home" / "plugins"
        plugins.mkdir(parents=True)
        install_double(plugins)

    def engine(self, **inputs: object) -> PulumiEngine:
        account = ProviderAccount(self.cloud, {"aws:region": PROVIDER.region}, inputs=inputs)
        return PulumiEngine(
            f"file://{self.folder / 'state'}",
            self.folder / "home",
            lambda: "a passphrase for tests",
            {"amazon": account},
        )

    def base(self) -> PulumiBase:
        clear = AwsShared(PROVIDER.region).clear
        account = ProviderAccount(self.cloud, {"aws:region": PROVIDER.region}, clear=clear)
        return PulumiBase(
            f"file://{self.folder / 'state'}",
            self.folder / "home",
            lambda: "a passphrase for tests",
            account,
            lambda _: {},
        )

    def up(self, *workers: WorkerInputs) -> tuple[StackStep, ...]:
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


class TranslatedEngine:
    """The real engine, told of the contract's workers in the words of stacks/aws."""

    name = PulumiEngine.name

    def __init__(self, engine: PulumiEngine) -> None:
        self._engine = engine

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        stack = self._engine.read(ref)
        if not isinstance(stack, Stack):
            return stack
        return stack.altered(workers=tuple(map(in_ours, stack.workers)))

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        return self._engine.preview(ref, [*map(in_its_words, workers)])

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        return self._engine.up(ref, [*map(in_its_words, workers)], progress, user_data)

    def prepare(
        self, ref: StackRef, workers: Sequence[WorkerInputs]
    ) -> AbstractContextManager[StackChange]:
        return self._engine.prepare(ref, [*map(in_its_words, workers)])

    def forget(self, ref: StackRef, worker: str) -> None:
        self._engine.forget(ref, worker)


class AwsContractRig:
    """The same rig, as the contract of every engine drives it."""

    ref = REF

    def __init__(self, rig: AwsRig) -> None:
        self._rig = rig
        self.engine = TranslatedEngine(rig.engine())

    def machines(self) -> list[str]:
        return names_in(self._rig.cloud)

    def given(self, worker: str) -> str:
        told = self._rig.amazon.ask(
            "describe_instance_attribute",
            InstanceId=id_in(self._rig.cloud, worker),
            Attribute="userData",
        )
        return sha256_of(base64.b64decode(told["UserData"].get("Value", "")).decode())

    def refuse(self, worker: str) -> None:
        self._rig.goes_wrong(refuse={worker: "VcpuLimitExceeded"})

    def heal(self) -> None:
        self._rig.goes_wrong()

    def lose(self, worker: str) -> None:
        self._rig.cloud.delete(id_in(self._rig.cloud, worker))

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        """Have the plugin kill the CLI and itself when the instance is made."""
        self._rig.goes_wrong(kill_after=worker)
        with pytest.raises(StackFailed):
            self.engine.up(REF, workers, quiet)
        self.heal()


@contextmanager
def an_aws_rig(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[AwsRig]:
    """Yield a rig whose account holds a launch template and nothing else."""
    skip_without_cli()
    patch.setenv("FLEET_AWS_DOUBLE", str(folder))
    with Amazon() as amazon:
        amazon.ask(
            "create_launch_template",
            LaunchTemplateName=TEMPLATE,
            LaunchTemplateData={"KeyName": "ops"},
        )
        yield AwsRig(folder, amazon)
