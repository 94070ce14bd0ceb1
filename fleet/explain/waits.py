"""Find the waits after which a waiting request is served, each checked by a plan.

A request waits for runs that create machines, for a worker to end its work, or for a time at
which a constraint ends.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from fleet.explain.case import Case
from fleet.explain.values import AwaitedEvent
from fleet.explain.what_if import Replans
from fleet.model.decisions import ENDED_BY_RUNS
from fleet.model.facts import World
from fleet.model.plan import Create, Release
from fleet.planner.forecast import next_pause
from fleet.planner.step import step
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration, write_time

MAX_MOMENTS = 3
"""Maximum number of expiry times of constraints for which a plan is tried."""
MOST_RUNS = 12


def find_waits(run: Case, key: str, replans: Replans) -> Iterator[AwaitedEvent]:
    """Yield waits after which a plan serves the request: for runs, or else for work or time."""
    if wait := wait_for_runs(run, key, replans):
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


def find_first_wait(run: Case, key: str, replans: Replans) -> AwaitedEvent | None:
    """Return the wait for runs or for a time after which a request starts earlier than else."""
    if key not in run.unserved:
        return None
    if wait := wait_for_runs(run, key, replans):
        return wait
    start = run.expected_start(key)
    moments = {*_moments(run, key, attempts=start is None)}
    sooner = sorted(each for each in moments if start is None or each < start)[:MAX_MOMENTS]
    times = (_start_after(run, key, AwaitedEvent(until=each), replans) for each in sooner)
    return next(filter(None, times), None)


def wait_for_runs(run: Case, key: str, replans: Replans) -> AwaitedEvent | None:
    """Return the wait for the first later run that serves a request; None without such a run."""
    then = _serve_later(run, key, replans)
    if then is None:
        return None
    start, end = then.forecast.start_of(key), then.forecast.end_of(key)
    return AwaitedEvent(runs=then.number, until=then.world.time, start=start, end=end)


def _serve_later(run: Case, key: str, replans: Replans) -> Case | None:
    """Return this or the first later run that serves a request if all machines boot, or None."""
    case: Case | None = run
    released: tuple[Release, ...] = ()
    while case and key not in case.served:
        plan = case.plan
        # The expected world still lists the workers that a run has released.
        is_released = plan.releases not in ((), released)
        changes = case is run or plan.actions or plan.resumes or is_released
        released = plan.releases
        is_hopeful = changes and case.number < MOST_RUNS and _is_eased_by_runs(case, key)
        case = replans.run_after(case) if is_hopeful else None
    return case


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
    return (
        any(not isinstance(action, Create) for action in plan.actions)
        or bool(plan.releases or plan.resumes)
        or is_throttled(run, key)
        or any(each.code in ENDED_BY_RUNS for each in decisions)
        or any(each.until and each.until <= following for each in blocked)
    )


def _find_work(run: Case, key: str) -> AwaitedEvent | None:
    """Return the wait for the busy worker that serves a request first; None without such a wait.

    In place of work that ends, a limit on tags or queues admits a request.
    """
    for found, turns in ((run.forecast, run.turns), (run.assumed, run.assumed_turns)):
        turn = turns.get(key)
        if key in found.starts:
            worker, seconds = found.workers[key], found.starts[key]
        elif turn and turn.first and turn.first.end is not None:
            worker, seconds = turn.first.worker, turn.first.end
        else:
            continue
        moment = run.world.time + timedelta(seconds=seconds)
        if found is run.forecast:
            return AwaitedEvent(workers=(worker,), until=moment)
        verdict = run.verdicts.get(worker)
        # With an assumed duration, a machine that does not exist yet is too uncertain.
        is_there = verdict is not None and verdict.state in ("busy", "idle")
        return AwaitedEvent(workers=(worker,), assumed=moment) if is_there else None
    return None


def _moments(run: Case, key: str, *, attempts: bool) -> Iterator[datetime]:
    """Yield the times when a constraint ends or `otherwise` lets the request waive a tag."""
    blocked = run.unserved[key].blocked if key in run.unserved else ()
    yield from (b.until for b in blocked if b.until and (attempts or b.code != "closed"))
    if attempts and run.world.attempts:
        # A stopped image version with more tags may boot again.
        yield from (each.until for each in run.choices.values() if each.until)
    found, signature = run.find(key), run.signatures.get(key)
    since = found[0].pending_since if found else None
    if since is None or signature is None:
        return
    for *_, seconds in run.drops.delays(signature.required):
        if (moment := since + timedelta(seconds=seconds)) > run.world.time:
            yield moment


def awaited(run: Case, wait: AwaitedEvent, replans: Replans) -> World | None:
    """Return the expected world after a wait; None if no trial plan is left."""
    later: Case | None = run
    for _ in range(wait.runs):
        later = replans.run_after(later) if later else None
    if later is None or wait.runs:
        return later.world if later else None
    return _step_to(run, wait)


def _step_to(run: Case, wait: AwaitedEvent) -> World:
    """Return the expected world after a wait for work or for a time."""
    found = run.assumed if wait.assumed else run.forecast
    moment = wait.assumed or wait.until or run.world.time
    return step(run.fleet, run.world, run.plan, moment, found)


def _start_after(run: Case, key: str, wait: AwaitedEvent, replans: Replans) -> AwaitedEvent | None:
    """Return a wait, with the start of the request if later; None if no run then serves it.

    A ticket's machine may first have to be deleted, and another created.
    """
    then = replans.run(("wait", wait), lambda: (run.fleet, _step_to(run, wait)))
    served = _serve_later(then, key, replans) if then else None
    if served is None:
        return None
    if wait.assumed:
        return wait  # with an assumed duration, the start is unknown
    start, end = served.forecast.start_of(key), served.forecast.end_of(key)
    is_later = not wait.workers or start != wait.until
    return wait.altered(start=start if is_later else wait.start, end=end)


def describe_wait(fleet: Fleet, wait: AwaitedEvent) -> str:
    """Return a wait as a phrase, such as "wait for the next run, about 12:00 UTC"."""
    when = write_time(wait.until) if wait.until else ""
    if wait.runs:
        runs = "the next run" if wait.runs == 1 else f"{wait.runs} runs"
        return f"wait for {runs}, about {when}: fleet apply every {write_duration(fleet.cadence)}"
    begins = f", then it starts about {write_time(wait.start)}" if wait.start else ""
    if not wait.workers:
        return f"wait until {when}{begins}"
    known = f", expected {when}" if when else ", duration unknown"
    known += f"; assumed: {write_time(wait.assumed)}" if wait.assumed else ""
    return f"wait until a worker is free ({', '.join(wait.workers)}){known}{begins}"
