"""This module applies again and again, and says when that is over; each run is a plain apply.

A run that fails, or finds the fleet's lock taken, does not end the loop: the next one tries again.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from traceback import format_exception

from fleet.errors import FleetError, Locked, StoreMissing
from fleet.plan import Plan, Reason
from fleet.ports import Clock, Tell, Waiter
from fleet.schema.units import write_duration

_MOST_DEFECTS = 6
"""After so many runs in a row that a defect ended, the loop ends too."""
_MOST_BACK_OFF = 3
"""Machines cost money while nobody looks after them: no run begins so many rhythms later."""
_AT_REST = frozenset(
    {
        Reason.KEPT_FOR_MIN,
        Reason.KEPT_SPARE,
        Reason.STATIC,
        Reason.POOL_PAUSED,
        Reason.NO_REGISTRY,
        Reason.MACHINE_GONE,
    }
)
"""Why a worker stays that nothing is expected of: no work of its own, no going away."""


@dataclass(frozen=True)
class Rhythm:
    """How often is applied, and when that is over, all in seconds."""

    every: int
    most: int | None = None
    """No run begins later than this after the first; None: there is no such end."""
    until_quiet: bool = False


@dataclass(frozen=True)
class Run:
    """What one apply came to."""

    code: int
    on_the_way: tuple[str, ...] = ()
    changed: bool = False
    """Whether it made a machine or let one go."""

    @property
    def is_quiet(self) -> bool:
        """Say whether it did all that is to do, and later runs would find nothing else."""
        return self.code == 0 and not self.on_the_way


def keep_applying(
    rhythm: Rhythm, run: Callable[[], Run], clock: Clock, waiter: Waiter, tell: Tell
) -> int:
    """Run in this rhythm until it is over or somebody asks to end; return the exit code.

    That is the code of the last run: each does what earlier ones could not. It is 0 where
    somebody asked to end, and 1 where it should have become quiet and did not.
    """
    tally = _Tally(began=clock.now())
    while True:
        started = clock.now()
        last = _attempt(run, tally, tell)
        if rhythm.until_quiet and last is not None and last.is_quiet:
            tell(f"quiet: nothing to do and nothing on the way, {tally.said}")
            return 0
        # A clock that is set back must not make the fleet wait for long.
        late = (clock.now() - started).total_seconds()
        pause = min(max(rhythm.every - late, 0), rhythm.every) + tally.back_off(rhythm.every)
        if rhythm.most is not None and _age(tally, clock) + pause >= rhythm.most:
            return _time_is_over(rhythm, tally, last, tell)
        if not waiter.wait(pause):
            tell(f"ended as asked, {tally.said}")
            return 0


def find_on_the_way(plan: Plan) -> Iterator[str]:
    """Yield what later runs have to see to, in a few words each; nothing where all is quiet.

    That is: actions of this run, and those that the next ones go on with; requests that have a
    machine or that a pool may make one for; workers that start, work, drain or are idle until
    their time is over. Not what min, spare, a pause or mode: observe leave as it is.
    """
    modes = {pool.pool: pool.mode for pool in plan.pools}
    held = [action for action in plan.withheld if modes.get(action.pool) != "observe"]
    actions = len(plan.actions) + len(plan.releases) + len(plan.unreleased) + len(held)
    actions += len(plan.promotions)
    if actions:
        yield _many(actions, "action")
    served = sum(len(each.by_worker) + len(each.by_create) for each in plan.signatures)
    waiting = sum(
        each.count
        for each in plan.unserved
        if any(modes.get(blocked.pool) == "apply" for blocked in each.blocked)
    )
    if served + waiting:
        yield _many(served + waiting, "waiting request")
    if plan.estimates:
        yield "requests that are not listed"
    states = Counter(
        worker.state
        for worker in plan.workers
        if worker.verdict == "keep"
        and not worker.inactive
        and worker.reason not in _AT_REST
        and modes.get(worker.pool) != "observe"
    )
    for state, count in sorted(states.items()):
        yield _many(count, f"{state} worker")


@dataclass
class _Tally:
    """What the runs so far came to."""

    began: datetime
    runs: int = 0
    failed: int = 0
    code: int = 1
    """Of the last run that had the lock; 1 while there was none."""
    defects: int = 0
    """Runs in a row that a defect of fleet's own ended."""
    defect: str = ""
    """What was last said of one."""

    def back_off(self, every: int) -> int:
        """Return how much later the next run begins where a defect ended the last ones."""
        return every * min((1 << self.defects) - 1, _MOST_BACK_OFF)

    @property
    def said(self) -> str:
        """Return how many runs there were, and how many were not in order."""
        failed = f", {self.failed} of them not in order" if self.failed else ""
        return f"after {_many(self.runs, 'run')}{failed}"


def _attempt(run: Callable[[], Run], tally: _Tally, tell: Tell) -> Run | None:
    """Run once; None where the run did not come to its end."""
    tally.runs += 1
    try:
        done = run()
    except Locked as locked:
        tell(f"{locked}; this run is left out")
        return None
    except FleetError as error:
        # A store that was there may come back; one that was never made no later run finds.
        if isinstance(error, StoreMissing) and tally.runs == 1:
            raise
        tally.code = error.exit_code
        tally.failed += 1
        tell(f"this run failed, the next tries again: {error}")
        return None
    except Exception as error:
        # Whoever waits for a machine is served on: the run is over, the service is not.
        tally.defects += 1
        tally.failed += 1
        tally.code = 1
        if tally.defects == _MOST_DEFECTS:
            raise
        told = "".join(format_exception(error))
        said = "as before" if told == tally.defect else f"please report it:\n{told}"
        tally.defect = told
        tell(f"a defect of fleet's own ended this run, the next tries again later; {said}")
        return None
    tally.defects = 0
    tally.code = done.code
    tally.failed += done.code != 0
    return done


def _age(tally: _Tally, clock: Clock) -> float:
    return (clock.now() - tally.began) / timedelta(seconds=1)


def _time_is_over(rhythm: Rhythm, tally: _Tally, last: Run | None, tell: Tell) -> int:
    left = f": {', '.join(last.on_the_way)}" if last and last.on_the_way else ""
    loud = f"; it did not become quiet{left}" if rhythm.until_quiet else ""
    tell(f"{write_duration(rhythm.most or 0)} are over {tally.said}{loud}")
    return tally.code or (1 if rhythm.until_quiet else 0)


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
