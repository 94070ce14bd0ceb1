"""Find the waits after which a waiting request is served, each checked by a plan.

A request waits for runs that create machines, for workers to end their work, or for a time at
which a constraint ends.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from fleet.explain.case import Case
from fleet.explain.values import AwaitedEvent
from fleet.explain.what_if import Replans, is_served
from fleet.model.decisions import ENDED_BY_RUNS
from fleet.model.facts import World
from fleet.model.plan import Create
from fleet.planner.demand import Drops
from fleet.planner.forecast import Forecast, next_pause
from fleet.planner.images import choose_images
from fleet.planner.step import step
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration, write_time

MAX_MOMENTS = 3
"""Maximum number of expiry times of constraints for which a plan is tried."""
MOST_RUNS = 12
_NAMED = 3


def find_waits(run: Case, key: str, replans: Replans) -> Iterator[AwaitedEvent]:
    """Yield waits after which a plan serves the request: for runs, or else for work or time."""
    if _is_eased_by_runs(run, key):
        wait = wait_for_runs(run, key, replans)
        if wait is not None:
            yield wait
            return
    if replans.left <= 0:
        replans.is_spent = True
        return
    work = _find_work(run, key)
    after = work and _start_after(run, key, work, replans)
    # An attempt after a shortage may fail again, so prefer a known end of work.
    moments = sorted({*_moments(run, key, attempts=after is None)})[:MAX_MOMENTS]
    times = (_start_after(run, key, AwaitedEvent(until=each), replans) for each in moments)
    known = [wait for wait in (after, next(filter(None, times), None)) if wait]
    yield from sorted(known, key=lambda w: (w.until is None, w.until or run.world.time))


def is_throttled(run: Case, key: str) -> bool:
    """Return whether only a throttle withholds the request's machine until a later run."""
    return key in run.unserved and run.unserved[key].path[:2] == ("guards", "throttle")


def _is_eased_by_runs(run: Case, key: str) -> bool:
    """Return whether one of the next runs possibly serves a request without any edit.

    Until then, machines boot or are deleted, or their creation is retried.
    """
    plan, following = run.plan, run.world.time + next_pause(run.fleet)
    unserved = run.unserved.get(key)
    blocked, decisions = (unserved.blocked, unserved.decisions) if unserved else ((), ())
    is_made = any(not isinstance(action, Create) for action in plan.actions)
    return (
        is_made
        or bool(plan.releases or plan.resumes)
        or is_throttled(run, key)
        or any(each.code in ENDED_BY_RUNS for each in decisions)
        or any(each.until and each.until <= following for each in blocked)
    )


def wait_for_runs(run: Case, key: str, replans: Replans) -> AwaitedEvent | None:
    """Return the wait for the first run that serves a request if all machines boot, or None."""
    while run.number < MOST_RUNS:
        if run.number and not (run.plan.actions or run.plan.releases or run.plan.resumes):
            return None
        following = replans.run_after(run)
        if following is None:
            return None
        run = following
        if is_served(run.plan, key):
            start = run.forecast.start_of(key)
            return AwaitedEvent(runs=run.number, until=run.world.time, start=start)
    return None


def _find_work(run: Case, key: str) -> AwaitedEvent | None:
    """Return the wait for the busy workers that serve a request first; None without such a wait.

    In place of work that ends, a limit on tags or queues admits a request.
    """
    for found, turns in ((run.forecast, run.turns), (run.assumed, run.assumed_turns)):
        turn = turns.get(key)
        if key in found.starts:
            workers, seconds = _workers_before(found, key), found.starts[key]
        elif turn and turn.first and turn.first.end is not None:
            workers, seconds = (turn.first.worker,), turn.first.end
        else:
            continue
        moment = run.world.time + timedelta(seconds=seconds)
        if found is run.forecast:
            return AwaitedEvent(workers=workers, until=moment)
        states = {each.worker: each.state for each in run.plan.workers}
        # With an assumed duration, a machine that does not exist yet is too uncertain.
        is_there = all(states.get(name) in ("busy", "idle") for name in workers)
        return AwaitedEvent(workers=workers, assumed=moment) if is_there else None
    return None


def _workers_before(found: Forecast, key: str) -> tuple[str, ...]:
    """Return the busy workers that first serve earlier requests and this one, or its worker."""
    own = found.workers[key]
    names: dict[str, None] = {}
    for other, worker in found.workers.items():
        each = found.standing[worker]
        if each.works and each.alike == found.standing[own].alike:
            names[worker] = None
        if other == key:
            break
    return tuple(names) or (own,)


def _moments(run: Case, key: str, *, attempts: bool) -> Iterator[datetime]:
    """Yield the times when a constraint ends or `otherwise` lets the request waive a tag."""
    blocked = run.unserved[key].blocked if key in run.unserved else ()
    yield from (b.until for b in blocked if b.until and (attempts or b.code != "closed"))
    if attempts and run.world.attempts:
        # A stopped image version with more tags may boot again.
        choices = choose_images(run.fleet, run.world).values()
        yield from (each.until for each in choices if each.until)
    found, signature = run.find(key), run.signatures.get(key)
    since = found[0].pending_since if found else None
    if since is None or signature is None:
        return
    for *_, seconds in Drops(run.fleet, run.world.time).delays(signature.required):
        if (moment := since + timedelta(seconds=seconds)) > run.world.time:
            yield moment


def awaited(run: Case, wait: AwaitedEvent, replans: Replans) -> World | None:
    """Return the expected world after a wait; None if no trial plan is left."""
    later: Case | None = run
    for _ in range(wait.runs):
        later = replans.run_after(later) if later else None
    if later is None or wait.runs:
        return later.world if later else None
    found = run.assumed if wait.assumed else run.forecast
    moment = wait.assumed or wait.until or run.world.time
    return step(run.fleet, run.world, run.plan, moment, found)


def _start_after(run: Case, key: str, wait: AwaitedEvent, replans: Replans) -> AwaitedEvent | None:
    """Return a wait, with the start of the request if later; None if no run then serves it.

    A ticket's machine may first have to be deleted, and another created.
    """
    seen = awaited(run, wait, replans)
    then = replans.run(("wait", wait), lambda: (run.fleet, seen)) if seen else None
    if then is None:
        return None
    start = then.forecast.start_of(key)
    if not is_served(then.plan, key):
        further = wait_for_runs(then, key, replans) if _is_eased_by_runs(then, key) else None
        if further is None:
            return None
        start = further.start
    # With an assumed duration, the start is unknown.
    is_later = not wait.workers or start != wait.until
    return wait.altered(start=start) if is_later and not wait.assumed else wait


def describe_wait(fleet: Fleet, wait: AwaitedEvent) -> str:
    """Return a wait as a phrase, such as "wait for the next run, about 12:00 UTC"."""
    when = write_time(wait.until) if wait.until else ""
    begins = f", then it starts about {write_time(wait.start)}" if wait.start else ""
    if wait.runs:
        runs = "the next run" if wait.runs == 1 else f"{wait.runs} runs"
        return f"wait for {runs}, about {when}: fleet apply every {write_duration(fleet.cadence)}"
    if wait.workers:
        names = ", ".join(wait.workers[:_NAMED])
        names += " and others" if len(wait.workers) > _NAMED else ""
        many = f"{len(wait.workers)} busy workers are" if len(wait.workers) > 1 else "a worker is"
        known = f", expected {when}" if when else ", duration unknown"
        if wait.assumed:
            known += f"; assumed: {write_time(wait.assumed)}"
        return f"wait until {many} free ({names}){known}{begins}"
    return f"wait until {when}{begins}"
