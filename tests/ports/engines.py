"""Let one contract suite drive every engine: each with a cloud it can look into."""

import fcntl
import hashlib
import json
import multiprocessing
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from multiprocessing.connection import wait
from pathlib import Path
from typing import ClassVar, Protocol

import pytest

from fleet.clouds.hooks.machines import CommandContext, HookMachines
from fleet.clouds.local.cloud import LocalMachines
from fleet.clouds.sim.machines import Menu, SimCloud, load
from fleet.engines.embedded import EmbeddedEngine
from fleet.engines.projects import ProviderAccount
from fleet.engines.pulumi import PulumiEngine
from fleet.engines.pulumi_cli import find_cli
from fleet.errors import EngineAbsent
from fleet.model.facts import Listing, Stack, Unknown, WorkerInputs
from fleet.ports import Engine, Provider, StackRef
from fleet.schema.model import Faults, HooksProvider
from tests.builders import NOW
from tests.fakes.engine import FakeEngine, FixedClock, Killed
from tests.rigs.hook_machines import write_hooks

REF = StackRef(project="sim", name="debian-builders", provider="desk", pool="builders")
MENU = Menu(boot=0, types={"ccx33": None, "ccx63": None})


def a_sim_worker(name: str, **overrides: object) -> WorkerInputs:
    """Return what the machine of a worker of debian/builders is made from."""
    labels = {"fleet": "debian", "pool": "builders", "worker": name, "digest": "0123456789abcdef"}
    defaults = {
        "name": name,
        "type": "ccx33",
        "image": "debian-13",
        "labels": labels,
        "settings": {"location": "fsn1"},
    }
    return WorkerInputs.model_validate(defaults | overrides)


def quiet(_: object) -> None:
    """Be shown progress and keep it to oneself."""


class Rig(Protocol):
    """An engine, its cloud, and what can go wrong there."""

    @property
    def ref(self) -> StackRef:
        """Return which stack is driven."""

    @property
    def engine(self) -> Engine:
        """Return the engine as a new process would see it."""

    def machines(self) -> list[str]:
        """Return the names of the machines that exist, sorted."""

    def given(self, worker: str) -> str:
        """Return the SHA-256 of the user data that a worker's machine was given; empty: none."""

    def refuse(self, worker: str) -> None:
        """Have the creation of this worker's machine fail from now on."""

    def heal(self) -> None:
        """Have every creation succeed again."""

    def lose(self, worker: str) -> None:
        """Have this worker's machine be deleted at the provider, behind the engine's back."""

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        """Run an `up` that dies when the machine exists and the engine does not know its id."""


class FakeRig:
    """The written engine."""

    ref = REF

    def __init__(self) -> None:
        self.engine = FakeEngine()

    def machines(self) -> list[str]:
        return sorted(self.engine.machines)

    def given(self, worker: str) -> str:
        return sha256_of(self.engine.given[worker])

    def refuse(self, worker: str) -> None:
        self.engine.fails = {worker}

    def heal(self) -> None:
        self.engine.fails = set()

    def lose(self, worker: str) -> None:
        del self.engine.machines[worker]

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        self.engine.dies_at = worker
        dies(self.engine, workers)
        self.engine.dies_at = None


class MortalCloud(SimCloud):
    """A cloud that refuses one name, or whose user is killed after making it."""

    refuses: str | None = None
    kills: str | None = None

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        if inputs.name == self.refuses:
            inputs = inputs.altered(type="not-sold")
        machine_id = super().create(inputs, user_data)
        if inputs.name == self.kills:
            raise Killed
        return machine_id


class MortalMachines(LocalMachines):
    """Machines that are processes; one name is refused, or its maker is killed after making it."""

    refuses: str | None = None
    kills: str | None = None
    texts: ClassVar[dict[str, str]] = {}
    """User data that each machine was given, by name."""

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        self.texts[inputs.name] = user_data
        run = "nothing-of-this-name" if inputs.name == self.refuses else "sleep infinity"
        inputs = inputs.altered(settings={"run": run})
        machine_id = super().create(inputs, user_data)
        if inputs.name == self.kills:
            raise Killed
        return machine_id


class MortalHooks(HookMachines):
    """Machines of a person's own commands; a name is refused, or their maker is killed."""

    refuses: str | None = None
    kills: str | None = None

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        if inputs.name == self.refuses:
            inputs = inputs.altered(type="not-sold")
        machine_id = super().create(inputs, user_data)
        if inputs.name == self.kills:
            raise Killed
        return machine_id


class EmbeddedRig:
    """The embedded engine over the simulated cloud."""

    ref = REF

    cloud: MortalCloud | MortalMachines | MortalHooks

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cloud = self.new_cloud()
        self.engine = self.new_engine()

    def new_cloud(self) -> MortalCloud | MortalMachines | MortalHooks:
        cloud = MortalCloud(self.folder / "sim.json", FixedClock(NOW))
        cloud.configure(MENU)
        return cloud

    def new_engine(self) -> EmbeddedEngine:
        return EmbeddedEngine(self.folder / "state.db", {"desk": self.cloud})

    def machines(self) -> list[str]:
        return names_in(self.cloud)

    def given(self, worker: str) -> str:
        assert not isinstance(self.cloud, MortalHooks)
        return given_in(self.cloud, worker)

    def refuse(self, worker: str) -> None:
        self.cloud.refuses = worker

    def heal(self) -> None:
        self.cloud.refuses = None

    def lose(self, worker: str) -> None:
        self.cloud.delete(id_in(self.cloud, worker))

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        self.cloud.kills = worker
        dies(self.engine, workers)
        self.cloud.kills = None
        self.engine = self.new_engine()


class LocalRig(EmbeddedRig):
    """The embedded engine over processes on this computer."""

    def new_cloud(self) -> MortalMachines:
        path = {"PATH": os.environ["PATH"]}
        return MortalMachines(self.folder / "machines", FixedClock(NOW), Faults(), path)

    def given(self, worker: str) -> str:
        return sha256_of(MortalMachines.texts[worker])

    def close(self) -> None:
        """End the processes."""
        for name in self.machines():
            self.lose(name)


class HookRig(EmbeddedRig):
    """The embedded engine over a person's own commands."""

    def new_cloud(self) -> MortalHooks:
        write_hooks(self.folder)
        (self.folder / "refuse.sh").write_text(
            '[ "$FLEET_TYPE" != not-sold ] && cat > "given-$FLEET_MACHINE" && . ./new.sh'
        )
        hooks = {name: ["sh", f"{name}.sh"] for name in ("delete", "list")}
        declared = HooksProvider.model_validate(
            {"kind": "hooks", "new": ["sh", "refuse.sh"], **hooks}
        )
        path = {"PATH": os.environ["PATH"]}
        around = CommandContext("desk", "debian", self.folder, self.folder / "state", path, {})
        return MortalHooks(declared, around, FixedClock(NOW))

    def given(self, worker: str) -> str:
        data = (self.folder / f"given-{worker}").read_bytes()
        return hashlib.sha256(data).hexdigest() if data else ""


class PulumiRig:
    """The real engine over the simulated cloud, which it reaches as a plugin."""

    ref = REF

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cloud = SimCloud(folder / "sim.json", FixedClock(NOW))
        self.cloud.configure(MENU)
        settings = {"sim:path": str(self.cloud.path)}
        self.accounts = {"desk": ProviderAccount(self.cloud, settings)}
        self.engine = self.new_engine()
        self.blocker = ""

    def new_engine(self) -> PulumiEngine:
        return PulumiEngine(
            f"file://{self.folder / 'state'}",
            self.folder / "home",
            lambda: "a passphrase for tests",
            self.accounts,
        )

    def machines(self) -> list[str]:
        return names_in(self.cloud)

    def given(self, worker: str) -> str:
        return given_in(self.cloud, worker)

    def refuse(self, worker: str) -> None:
        taken = a_sim_worker(worker, labels={"fleet": "somebody-else"})
        self.blocker = self.cloud.create(taken)

    def heal(self) -> None:
        self.cloud.delete(self.blocker)

    def lose(self, worker: str) -> None:
        self.cloud.delete(id_in(self.cloud, worker))

    def die_making(self, worker: str, workers: Sequence[WorkerInputs]) -> None:
        """Kill the CLI, its plugin and its parent while the creation is under way."""
        with self.cloud.path.with_name("sim.json.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            child = multiprocessing.get_context("spawn").Process(
                target=_up_in_a_child, args=(self.folder, list(workers))
            )
            child.start()
            while worker not in self.pending():
                assert not wait([child.sentinel], timeout=0.05), "the child was to be killed"
            kill_family(child.pid or 0)
            child.join()
            child.close()
        # The provider did the deed; only the answer never arrived.
        self.cloud.create(next(each for each in workers if each.name == worker))

    def pending(self) -> list[str]:
        path = self.folder / "state/.pulumi/stacks/fleet-sim" / f"{REF.name}.json"
        checkpoint = json.loads(path.read_text()) if path.exists() else {"checkpoint": {}}
        latest = checkpoint["checkpoint"].get("latest") or {}
        return [
            each["resource"].get("inputs", {}).get("name", "")
            for each in latest.get("pending_operations", [])
        ]


def skip_without_cli() -> None:
    """Skip a test loudly where the Pulumi CLI is absent."""
    try:
        find_cli()
    except EngineAbsent as absent:
        pytest.skip(f"the real engine is NOT TESTED: {absent}")


def _up_in_a_child(folder: Path, workers: Sequence[WorkerInputs]) -> None:
    PulumiRig(folder).engine.up(REF, workers, quiet)


def kill_family(pid: int) -> None:
    """Kill a process and all that it has started; some may end on their own meanwhile."""
    for each in family_of(pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def family_of(pid: int) -> list[int]:
    """Return a process and all that it has started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(stat.parent.name))
    family = [pid]
    for member in family:
        family.extend(children.get(member, []))
    return family


def dies(engine: Engine, workers: Sequence[WorkerInputs]) -> None:
    """Run an `up` to its death."""
    try:
        engine.up(REF, workers, quiet)
    except Killed:
        return
    raise AssertionError("it was to die, and lives")


def names_in(cloud: Provider) -> list[str]:
    """Return the names of the machines in a cloud, sorted."""
    listing = cloud.list("debian")
    assert isinstance(listing, Listing), listing
    return [machine.name for machine in listing.machines]


def sha256_of(text: str) -> str:
    """Return the SHA-256 of user data; empty where none was given."""
    return sha256(text.encode()).hexdigest() if text else ""


def given_in(cloud: MortalCloud | MortalMachines | SimCloud, worker: str) -> str:
    """Return the SHA-256 of what a simulated machine was given."""
    machines = load(cloud.path).machines.values()
    return next(each.given for each in machines if each.inputs.name == worker)


def id_in(cloud: Provider, worker: str) -> str:
    """Return the id of a worker's machine in a cloud."""
    listing = cloud.list("debian")
    assert isinstance(listing, Listing), listing
    return next(machine.id for machine in listing.machines if machine.name == worker)


def read(engine: Engine, ref: StackRef = REF) -> Stack:
    """Return the stack, which must be there."""
    stack = engine.read(ref)
    assert stack is not None
    assert not isinstance(stack, Unknown), stack
    return stack
