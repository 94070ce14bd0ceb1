"""Record a fortnight that never was: the same jobs and the same worlds in every run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from fleet.model.facts import (
    Demand,
    Listing,
    Machine,
    MachineState,
    QueueReading,
    Request,
    Stack,
    Work,
    Worker,
    WorkerInputs,
    WorkerState,
    World,
)
from fleet.model.plan import Plan
from fleet.planner.inventory import PoolInventory
from fleet.schema.model import Fleet
from fleet.simulate.recorded_demand import PastRequest
from fleet.simulate.replay import Replay, SimulationInputs, decide
from fleet.state import history

QUEUE = "work"


def a_job(number: int, at: datetime, seconds: int, **said: object) -> PastRequest:
    """Return a job that comes at a time."""
    about = {"id": str(number), "task": "sbuild", "pending_since": at, "scope": "debian"}
    request = Request.model_validate(about | said)
    return PastRequest(f"{QUEUE}/{number}", QUEUE, request, at, seconds=seconds)


def working_days(
    start: datetime, days: int, per_day: int, packages: Sequence[str] = ("hello", "sed", "bash")
) -> Iterator[PastRequest]:
    """Yield jobs of some days in order of time: four in five come from 7 to 17 o'clock."""
    chance = Random(24)  # noqa: S311 - the same jobs in every run
    number = 0
    for day in range(days):
        midnight = start + timedelta(days=day)
        is_free = midnight.isoweekday() > 5
        seconds = sorted(
            chance.randrange(86400) if chance.random() < 0.2 else 25200 + chance.randrange(36000)
            for _ in range(per_day // 4 if is_free else per_day)
        )
        for second in seconds:
            number += 1
            took = int(min(max(chance.lognormvariate(7.6, 0.8), 300), 6 * 3600))
            more: dict[str, object] = {"package": chance.choice(packages)}
            more |= {"owner": chance.choice(("ann", "ben", "zoe")), "expected_seconds": took}
            if chance.random() < 0.05:
                more["required"] = ["big"]
            yield a_job(number, midnight + timedelta(seconds=second), took, **more)


def record(
    fleet: Fleet, jobs: Iterable[PastRequest], start: datetime, end: datetime
) -> Iterator[World]:
    """Yield what each run of this fleet would have seen, beginning with nothing."""
    seen: list[World] = []

    def watched(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Plan:
        seen.append(world)
        return decide(fleet, world, inventories)

    empty = QueueReading(demand=Demand(read_at=start), workers=None)
    first = World(fleet=fleet.fleet, time=start, queues=dict.fromkeys(fleet.queues, empty))
    task = SimulationInputs(fleet, skips=False)
    replay = Replay(task, first, lambda _, __: None, watched)
    for job in jobs:
        replay.feed(job)
        yield from seen
        seen.clear()
    replay.finish(end)
    yield from seen


def record_fixed(
    jobs: Sequence[PastRequest],
    start: datetime,
    end: datetime,
    *,
    every: timedelta,
    machines: int = 4,
) -> Iterator[World]:
    """Yield what runs see of machines that are always there and take the oldest job that waits.

    Of the fleet `trial` of `tests.rigs.trial`: they are of the pool `builders` at `desk`.
    """
    names = [f"trial-builders-{nth + 1:04}" for nth in range(machines)]
    spans = _spans(jobs, names)
    inputs = [WorkerInputs(name=name, type="ccx33", image="trixie") for name in names]
    stack = Stack(
        engine="embedded",
        provider="desk",
        serial=1,
        workers=tuple(inputs),
        ids={name: f"sim-{name}" for name in names},
    )
    made = start - timedelta(hours=1)
    listed = tuple(
        Machine(
            name=name,
            id=f"sim-{name}",
            pool="builders",
            type="ccx33",
            state=MachineState.RUNNING,
            created_at=made,
        )
        for name in names
    )
    now = start
    while now <= end:
        waiting = tuple(j.request for j, (began, _, _) in spans.items() if j.at <= now < began)
        running = {name: (j, at) for j, (at, to, name) in spans.items() if at <= now < to}
        done = {
            name: [to for _, to, on in spans.values() if on == name and to <= now]
            for name in names
        }
        workers = tuple(
            _worker(name, running.get(name), max(done[name], default=made), len(done[name]))
            for name in names
        )
        yield World(
            fleet="trial",
            time=now,
            queues={
                QUEUE: QueueReading(demand=Demand(read_at=now, requests=waiting), workers=None)
            },
            providers={"desk": Listing(read_at=now, machines=listed, workers=workers)},
            stacks={"builders": stack},
        )
        now += every


def _spans(
    jobs: Sequence[PastRequest], names: Sequence[str]
) -> dict[PastRequest, tuple[datetime, datetime, str]]:
    """Return when each job runs, and on which machine."""
    free = dict.fromkeys(names, jobs[0].at)
    spans = {}
    for job in jobs:
        name = min(names, key=lambda each: (free[each], each))
        began = max(free[name], job.at)
        free[name] = began + timedelta(seconds=job.seconds or 0)
        spans[job] = (began, free[name], name)
    return spans


def _worker(
    name: str, runs: tuple[PastRequest, datetime] | None, ended: datetime, uses: int
) -> Worker:
    if runs is None:
        return Worker(
            name=name,
            machine=name,
            pool="builders",
            state=WorkerState.IDLE,
            since=ended,
            uses=uses,
        )
    job, began = runs
    work = Work(task=job.request.task, started_at=began, owner=job.request.owner)
    return Worker(
        name=name,
        machine=name,
        pool="builders",
        state=WorkerState.BUSY,
        running=job.request.id,
        work=work,
        since=began,
        uses=uses,
    )


def write(path: Path, worlds: Iterable[World]) -> None:
    """Write worlds as `fleet observe --append` would have."""
    for world in worlds:
        history.append(str(path), world.model_dump_json() + "\n", world.time)


def made_up(path: Path, days: int) -> None:
    """Write what a fleet would have seen on some days of November, 30 builds a working day."""
    start, every = datetime(2026, 11, 2, tzinfo=UTC), timedelta(minutes=30)
    jobs = list(working_days(start, days, 30))
    write(path, record_fixed(jobs, start, start + timedelta(days=days), every=every))
