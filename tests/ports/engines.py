"""This module lets one contract suite drive every engine: each with a cloud it can look into."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fleet.engines.embedded import EmbeddedEngine
from fleet.facts import Listing, Stack, Unknown, WorkerInputs
from fleet.ports import Engine, StackRef
from fleet.providers.sim import SimCloud
from fleet.providers.sim_file import Menu
from tests.builders import NOW
from tests.fakes_engine import FakeEngine, FixedClock, Killed

REF = StackRef(project="sim", name="debian-builders", provider="desk", pool="builders")
MENU = Menu(boot=0, types={"ccx33": None, "ccx63": None})


def a_sim_worker(name: str, **overrides: object) -> WorkerInputs:
    """Return what the machine of a worker of debian/builders is made from."""
    labels = {"fleet": "debian", "pool": "builders", "worker": name, "digest": "0123456789abcdef"}
    defaults = {"name": name, "type": "ccx33", "image": "trixie", "labels": labels}
    return WorkerInputs.model_validate(defaults | overrides)


def quiet(_: object) -> None:
    """Be shown progress and keep it to oneself."""


class Rig(Protocol):
    """An engine, its cloud, and what can go wrong there."""

    @property
    def engine(self) -> Engine:
        """Return the engine as a new process would see it."""

    def machines(self) -> list[str]:
        """Return the names of the machines that exist, sorted."""

    def refuse(self, worker: str) -> None:
        """Have the creation of this worker's machine fail from now on."""

    def heal(self) -> None:
        """Have every creation succeed again."""

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        """Run an `up` that dies when the machine exists and the engine does not know its id."""

    def claimed_by_the_other(self) -> Engine:
        """Return this engine, told that the other one owns the stack."""


class FakeRig:
    """The written engine."""

    def __init__(self) -> None:
        self.engine = FakeEngine()

    def machines(self) -> list[str]:
        return sorted(self.engine.machines)

    def refuse(self, worker: str) -> None:
        self.engine.fails = {worker}

    def heal(self) -> None:
        self.engine.fails = set()

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        self.engine.dies_at = worker
        dies(self.engine, workers)
        self.engine.dies_at = None

    def claimed_by_the_other(self) -> Engine:
        self.engine.stacks[REF.name] = Stack(engine="pulumi", provider="desk", serial=1)
        return self.engine


class MortalCloud(SimCloud):
    """A simulated cloud that refuses one name, or is killed after making it."""

    refuses: str | None = None
    kills: str | None = None

    def create(self, inputs: WorkerInputs) -> str:
        if inputs.name == self.refuses:
            inputs = inputs.model_copy(update={"type": "not-sold"})
        machine_id = super().create(inputs)
        if inputs.name == self.kills:
            raise Killed
        return machine_id


class EmbeddedRig:
    """The embedded engine over the simulated cloud."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cloud = MortalCloud(folder / "sim.json", FixedClock(NOW))
        self.cloud.configure(MENU)
        self.engine = self.new_engine()

    def new_engine(self, owner: str | None = None) -> EmbeddedEngine:
        return EmbeddedEngine(
            self.folder / "state.db", {"desk": self.cloud}, claimed_by=lambda _: owner
        )

    def machines(self) -> list[str]:
        return names_in(self.cloud)

    def refuse(self, worker: str) -> None:
        self.cloud.refuses = worker

    def heal(self) -> None:
        self.cloud.refuses = None

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        self.cloud.kills = worker
        dies(self.engine, workers)
        self.cloud.kills = None
        self.engine = self.new_engine()

    def claimed_by_the_other(self) -> Engine:
        return self.new_engine(owner="pulumi")


def dies(engine: Engine, workers: Sequence[WorkerInputs]) -> None:
    """Run an `up` to its death."""
    try:
        engine.up(REF, workers, quiet)
    except Killed:
        return
    raise AssertionError("it was to die, and lives")


def names_in(cloud: SimCloud) -> list[str]:
    """Return the names of the machines in a simulated cloud, sorted."""
    listing = cloud.list("debian")
    assert isinstance(listing, Listing), listing
    return [machine.name for machine in listing.machines]


def read(engine: Engine) -> Stack:
    """Return the stack, which must be there."""
    stack = engine.read(REF)
    assert stack is not None
    assert not isinstance(stack, Unknown), stack
    return stack
