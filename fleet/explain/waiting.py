"""This module finds what a waiting request may simply wait for: a run, a worker, a moment."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from fleet.census.registrations import is_busy
from fleet.explain.counterfactual import Replans, Run, find_request, is_served
from fleet.explain.forecast import left_of
from fleet.explain.later import freed, later
from fleet.facts import Listing, Worker, World
from fleet.facts.values import Moment, Value
from fleet.plan import Plan
from fleet.schema.model import Fleet, Pool
from fleet.schema.rules import Otherwise
from fleet.schema.units import write_duration

MOST_RUNS = 12
MOST_DAYS = 62
"""How far ahead is looked: the next month ends within it."""

_NAMED = 3


class Wait(Value):
    """What to wait for, and until when."""

    runs: int = 0
    """So many runs of fleet apply from now, each with its machines up."""
    workers: tuple[str, ...] = ()
    """Busy workers whose work has to end."""
    until: Moment | None = None
    """The expected moment; None where nothing says how long those workers work."""
    start: Moment | None = None
    """Of runs: when the request is expected to start on what the last of them makes."""


def awaited(fleet: Fleet, world: World, wait: Wait, plan: Plan, replans: Replans) -> World | None:
    """Return the world that a wait waits for."""
    run: Run | None = Run(fleet, world, plan)
    for _ in range(wait.runs):
        run = replans.run_after(run) if run else None
    if wait.runs:
        return run.world if run else None
    world = later(world, wait.until) if wait.until else world
    return freed(world, wait.workers)


def find_waits(
    fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans
) -> Iterator[Wait]:
    """Yield what to wait for, each planned again; the coming runs stand for everything later."""
    run = wait_for_runs(Run(fleet, world, plan), key, replans)
    if run is not None:
        yield run
        return
    found = [
        _after_work(fleet, world, plan, key, replans),
        _after_time(fleet, world, plan, key, replans),
    ]
    known = [wait for wait in found if wait is not None]
    yield from sorted(known, key=lambda w: (w.until is None, w.until or world.time))


def is_throttled(plan: Plan, key: str) -> bool:
    """Say whether only a throttle keeps a request's machine back: a later run makes it."""
    return any(u.path[:2] == ("guards", "throttle") for u in plan.unserved if key in u.requests)


def wait_for_runs(run: Run, key: str, replans: Replans) -> Wait | None:
    """Return the first run that serves a request if every run's machines come up."""
    while run.number < MOST_RUNS:
        if run.number and not (run.plan.actions or run.plan.releases):
            return None
        following = replans.run_after(run)
        if following is None:
            return None
        run = following
        if is_served(run.plan, key):
            start = run.forecast.start_of(key)
            return Wait(runs=run.number, until=run.world.time, start=start)
    return None


def _after_work(fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans) -> Wait | None:
    """Return the fewest busy workers, first to end first, that serve a request once free."""
    pools = {each.pool for u in plan.unserved if key in u.requests for each in u.blocked}
    own = {v.worker for v in plan.workers if v.pool in pools or v.state == "static"}
    busy = sorted(
        (w for w in _busy_workers(world) if w.name in own or not pools),
        key=lambda w: _ending(fleet, world, w),
    )

    def waiting_for(most: int) -> Wait:
        chosen = busy[:most]
        left = [left_of(fleet, world, worker) for worker in chosen]
        known = [seconds for seconds in left if seconds is not None]
        until = world.time + timedelta(seconds=max(known)) if len(known) == len(left) else None
        return Wait(workers=tuple(worker.name for worker in chosen), until=until)

    def serves(most: int) -> bool:
        wait = waiting_for(most)
        seen = awaited(fleet, world, wait, plan, replans)
        return seen is not None and replans.serves(fleet, seen, key, of=wait)

    fewest = first_that(serves, len(busy))
    return waiting_for(fewest) if fewest else None


def _busy_workers(world: World) -> list[Worker]:
    found: dict[str, Worker] = {}
    readings = [r.workers for r in world.queues.values() if isinstance(r.workers, tuple)]
    listings = [
        each.workers
        for each in world.providers.values()
        if isinstance(each, Listing) and each.workers is not None
    ]
    for worker in (w for workers in (*listings, *readings) for w in workers):
        if is_busy(worker) and not worker.draining:
            found.setdefault(worker.name, worker)
    return [*found.values()]


def _ending(fleet: Fleet, world: World, worker: Worker) -> tuple[bool, int, str]:
    left = left_of(fleet, world, worker)
    return (left is None, left or 0, worker.name)


def _after_time(fleet: Fleet, world: World, plan: Plan, key: str, replans: Replans) -> Wait | None:
    """Return the first run that serves a request although nothing else happens until then."""
    if not _clock_matters(fleet, world, plan, key):
        return None

    def at(runs: int) -> datetime:
        return world.time + timedelta(seconds=runs * fleet.cadence)

    most = MOST_DAYS * 86_400 // fleet.cadence

    def serves(runs: int) -> bool:
        return replans.serves(fleet, later(world, at(runs)), key, of=("time", runs))

    runs = first_that(serves, most)
    if not runs:
        return None
    # The moment itself, not the run after it: that moves with each look.
    before = at(runs - 1)

    def serves_at(moment: datetime) -> bool:
        return replans.serves(fleet, later(world, moment), key, of=("at", moment))

    likely = sorted(m for m in _likely_moments(fleet, world, key) if before < m <= at(runs))
    moment = next(filter(serves_at, likely), None)
    if moment is None:
        seconds = first_that(lambda n: serves_at(before + timedelta(seconds=n)), fleet.cadence - 1)
        moment = before + timedelta(seconds=seconds or fleet.cadence)
    return Wait(until=moment)


def _likely_moments(fleet: Fleet, world: World, key: str) -> Iterator[datetime]:
    """Yield when patience for a tag ends, and every full hour of a day: then periods end too."""
    found = find_request(world, key)
    since = found[0].pending_since if found else None
    for rule in fleet.tags.values():
        if since is not None and isinstance(rule.otherwise, Otherwise):
            yield since + timedelta(seconds=rule.otherwise.after)
    hour = world.time.replace(minute=0, second=0, microsecond=0)
    yield from (hour + timedelta(hours=n) for n in range(1, MOST_DAYS * 24 + 1))


def _clock_matters(fleet: Fleet, world: World, plan: Plan, key: str) -> bool:
    """Say whether time alone may serve a request: a period, a back-off or a patience ends."""
    blocked = [each for u in plan.unserved if key in u.requests for each in u.blocked]
    pools = [fleet.pools.get(each.pool) for each in blocked]
    return bool(
        world.attempts
        or any("budget" in each.path or "budgets" in each.path for each in blocked)
        or any(isinstance(pool, Pool) and pool.replace.windows for pool in pools)
        or any(rule.otherwise != "wait" for rule in fleet.tags.values())
    )


def first_that(holds: Callable[[int], bool], most: int) -> int:
    """Return the least number from 1 to `most` for which it holds, by doubling and bisection.

    0 where doubling met none; what is returned was tried.
    """
    low, high = 0, 1
    while high <= most and not holds(high):
        low, high = high, high * 2
    if high > most:
        if low >= most or not holds(most):
            return 0
        high = most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def describe_wait(fleet: Fleet, wait: Wait) -> str:
    """Return what to wait for in words."""
    when = f"{wait.until:%Y-%m-%d %H:%M} UTC" if wait.until else ""
    if wait.runs:
        runs = "the next run" if wait.runs == 1 else f"{wait.runs} runs"
        return f"wait for {runs}, about {when}: fleet apply every {write_duration(fleet.cadence)}"
    if wait.workers:
        names = ", ".join(wait.workers[:_NAMED])
        names += " and others" if len(wait.workers) > _NAMED else ""
        many = f"{len(wait.workers)} busy workers are" if len(wait.workers) > 1 else "a worker is"
        known = f", expected {when}" if when else ", when is not known: nothing says how long"
        return f"wait until {many} free ({names}){known}"
    return f"wait until {when}"
