"""Measure two shapes of one fleet with the real engine: a stack per pool, or one.

Both hold the same simulated machines. The one stack has a component per pool and goes on after an
error. Then one pool's machines are out of stock, and one pool's stack is locked by another run.
"""

import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.report import Report
from fleet.clouds.sim.machines import Menu, SimCloud, load
from fleet.engines.projects import ProviderAccount, load_project
from fleet.engines.pulumi import PulumiEngine
from fleet.engines.pulumi_cli import Home, find_cli
from fleet.errors import FleetError
from fleet.model.facts import Stack, Unknown, WorkerInputs
from fleet.ports import StackRef

if TYPE_CHECKING:
    from pulumi import automation

POOLS, WORKERS = 20, 3
FAILING, LOCKED = 7, 13
SOLD_OUT = "ccx63"
PASSPHRASE = "of the measurement"  # noqa: S105 - opens nothing
PARALLEL = 2


class WallClock:
    """The computer's clock."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        return datetime.now(UTC)


def measure() -> Report:
    """Return seconds of each operation in both shapes, and how many pools got what they asked."""
    figures: dict[str, float] = {}
    for name, shape in (("per_pool", PerPool), ("one_stack", OneStack)):
        with tempfile.TemporaryDirectory(prefix="fleet-bench-") as folder:
            told = _measure(shape(Path(folder)))
        figures |= {f"{name}_{figure}": value for figure, value in told.items()}
    return Report(
        name="stacks",
        figures=figures,
        ratios={
            f"{name}_per_pool_over_one_stack": figures[f"per_pool_{name}_s"]
            / figures[f"one_stack_{name}_s"]
            for name in ("first", "one_worker_more")
        },
    )


def _measure(shape: "PerPool | OneStack") -> dict[str, float]:
    one, every = (3,), tuple(range(POOLS))
    failing = _fleet(more=(*one, *every), sold_out=FAILING)
    locked = _fleet(more=(*one, *every, *every), sold_out=FAILING)
    figures = {
        "first_s": _seconds(lambda: shape.up(_fleet())),
        "no_change_s": _seconds(lambda: shape.up(_fleet())),
        "one_worker_more_s": _seconds(lambda: shape.up(_fleet(more=one))),
        "one_failing_s": _seconds(lambda: shape.up(failing)),
        f"one_failing_served_of_{POOLS}": _served(shape.cloud, failing),
    }
    shape.lock(LOCKED)
    figures["one_locked_too_s"] = _seconds(lambda: shape.up(locked))
    return figures | {f"one_locked_too_served_of_{POOLS}": _served(shape.cloud, locked)}


class PerPool:
    """A stack per pool, in processes of their own, as many at once as there are cores here."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cloud = _cloud(folder)

    def up(self, fleet: Sequence[Sequence[WorkerInputs]]) -> None:
        """Make it so in the pools that have something to do, which their records tell."""
        engine = _engine(self.folder)
        differ = [
            (number, workers)
            for number, workers in enumerate(fleet)
            if not _is_so(engine.read(_ref(number)), workers)
        ]
        if not differ:
            return
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(PARALLEL, mp_context=context) as processes:
            list(processes.map(partial(_up_pool, self.folder), *zip(*differ, strict=True)))

    def lock(self, pool: int) -> None:
        """Have another run hold a pool's stack."""
        _lock(self.folder, f"bench-{pool}")


class OneStack:
    """One stack with a component per pool, which goes on after an error."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cloud = _cloud(folder)

    def up(self, fleet: Sequence[Sequence[WorkerInputs]]) -> None:
        """Make it so; what fails is told by what does not exist afterwards."""
        from pulumi.automation import errors

        stack = self._stack(partial(_declare, fleet))
        try:
            stack.up(continue_on_error=True)
        except (errors.CommandError, errors.InlineSourceRuntimeError):
            return

    def lock(self, _: int) -> None:
        """Have another run hold the stack: there is no other."""
        _lock(self.folder, "bench")

    def _stack(self, program: Callable[[], None]) -> "automation.Stack":
        from pulumi import automation

        home = Home(self.folder / "home")
        backend = self.folder / "state"
        home.prepare("fleet-sim", backend)
        workspace = automation.LocalWorkspace(
            work_dir=str(home.work("fleet-sim")),
            pulumi_home=str(home.folder / "cli"),
            program=program,
            env_vars=home.environment(f"file://{backend}", PASSPHRASE),
            secrets_provider="passphrase",
            project_settings=automation.ProjectSettings(name="fleet-sim", runtime="python"),
            pulumi_command=automation.PulumiCommand(str(find_cli().parents[1])),
        )
        stack = automation.Stack.create_or_select("bench", workspace)
        home.configure("fleet-sim", "bench", {"sim:path": str(self.cloud.path)})
        return stack


def _engine(folder: Path) -> PulumiEngine:
    cloud = SimCloud(folder / "sim.json", WallClock())
    return PulumiEngine(
        f"file://{folder / 'state'}",
        folder / "home",
        lambda: PASSPHRASE,
        {"desk": ProviderAccount(cloud, {"sim:path": str(cloud.path)})},
    )


def _ref(pool: int) -> StackRef:
    return StackRef(project="sim", name=f"bench-{pool}", provider="desk", pool=f"p{pool}")


def _is_so(stack: Stack | Unknown | None, workers: Sequence[WorkerInputs]) -> bool:
    return isinstance(stack, Stack) and len(stack.ids) == len(workers)


def _up_pool(folder: Path, number: int, workers: Sequence[WorkerInputs]) -> None:
    engine = _engine(folder)
    try:
        engine.preview(_ref(number), workers)
        engine.up(_ref(number), workers, lambda _: None)
    except FleetError:
        return  # what failed is told by what does not exist afterwards


def _declare(fleet: Sequence[Sequence[WorkerInputs]]) -> None:
    import pulumi

    machine = load_project("sim").program.__globals__["Machine"]
    for number, workers in enumerate(fleet):
        pool = pulumi.ComponentResource("fleet:index:Pool", f"p{number}")
        for worker in workers:
            options = pulumi.ResourceOptions(parent=pool)
            machine(worker.name, worker.model_dump(mode="json"), options)


def _fleet(
    more: Sequence[int] = (), sold_out: int | None = None
) -> tuple[tuple[WorkerInputs, ...], ...]:
    """Return the workers of every pool; each pool named in `more` has one more."""
    return tuple(
        tuple(
            _worker(pool, number, SOLD_OUT if pool == sold_out and number >= WORKERS else "ccx33")
            for number in range(WORKERS + more.count(pool))
        )
        for pool in range(POOLS)
    )


def _worker(pool: int, number: int, machine: str) -> WorkerInputs:
    name = f"bench-p{pool}-{number}"
    labels = {"fleet": "bench", "pool": f"p{pool}", "worker": name, "digest": "0123"}
    return WorkerInputs(name=name, type=machine, image="trixie", labels=labels)


def _cloud(folder: Path) -> SimCloud:
    cloud = SimCloud(folder / "sim.json", WallClock())
    cloud.configure(Menu(boot=0, types={"ccx33": None, SOLD_OUT: 0}))
    return cloud


def _served(cloud: SimCloud, fleet: Sequence[Sequence[WorkerInputs]]) -> int:
    made = {machine.inputs.name for machine in load(cloud.path).machines.values()}
    return sum({worker.name for worker in workers} <= made for workers in fleet)


def _lock(folder: Path, stack: str) -> None:
    """Write the lock of a run that lives: this process."""
    path = folder / "state/.pulumi/locks/organization/fleet-sim" / stack / "1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = {
        "pid": os.getpid(),
        "username": "bench",
        "hostname": socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat(),
    }
    path.write_text(json.dumps(lock), encoding="utf-8")


def _seconds(act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()
    return time.monotonic() - began
