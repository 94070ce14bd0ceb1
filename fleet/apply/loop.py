"""Apply again and again until that is over; each run is a plain apply.

A run that fails, or finds the fleet's lock taken, does not end the loop: the next run retries.
"""

import argparse
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from traceback import format_exception

from fleet.apply.config import Config, check_file, to_config
from fleet.apply.parallel import Background
from fleet.apply.plan import Decision
from fleet.apply.run import Applied, RunOptions, apply_once
from fleet.apply.timer import Signals
from fleet.clock import SystemClock, utc_now
from fleet.errors import FleetError, Locked, StoreMissing
from fleet.model.plan import Plan, Reason
from fleet.ports import Clock, Console, Tell, Waiter
from fleet.report.findings import to_text
from fleet.report.outcome import outcome_to_text
from fleet.report.plan_text import plan_to_text
from fleet.schema.model import Fleet
from fleet.schema.units import write_count, write_duration

_MOST_DEFECTS = 6
"""After so many runs in a row that a defect ended, the loop ends too."""
_MOST_BACK_OFF = 3
"""Machines cost money between runs: no run begins more intervals later."""
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
"""Why a worker stays that is neither pending work nor about to go."""


@dataclass(frozen=True)
class Schedule:
    """How often to apply and when to stop, in seconds."""

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
    """Whether it made or deleted a machine."""

    @property
    def is_quiet(self) -> bool:
        """Say whether it did all that is to do, and later runs would find nothing else."""
        return self.code == 0 and not self.on_the_way


def keep_running(
    run: Callable[[], Run],
    schedule: Schedule,
    console: Console,
    signals: Signals,
    background: Background | None = None,
) -> int:
    """Run by this schedule until it is over or a signal asks to stop; return the exit code.

    What goes on in the background is done first.
    """
    with signals.heard():
        try:
            code = keep_applying(schedule, run, SystemClock(), signals, console.note)
        except KeyboardInterrupt:
            if signals.was_cut:
                raise
            if background is None or not background.under_way:
                console.note("stopped")
            code = 0
        finally:
            if background is not None:
                _finish(background, console, signals)
    if signals.was_cut:
        raise KeyboardInterrupt
    return code


def _finish(background: Background, console: Console, signals: Signals) -> None:
    if background.under_way:
        console.note(
            f"stopping once these are done: {', '.join(background.under_way)}; a second signal "
            "cancels them"
        )
    with signals.changing(background.cut):
        background.finish()
    for outcome in background.ended():
        error = f": {outcome.error}" if outcome.error else ""
        console.note(f"{outcome.pool}: {outcome.result}{error}")


def keep_applying(
    schedule: Schedule, run: Callable[[], Run], clock: Clock, waiter: Waiter, tell: Tell
) -> int:
    """Run by this schedule until it is over or the waiter asks to stop; return the exit code.

    That is the code of the last run: each does what earlier ones could not. It is 0 where
    somebody asked to stop, and 1 where it should have become quiet and did not.
    """
    tally = _Tally(began=clock.now())
    while True:
        started = clock.now()
        last = _attempt(run, tally, tell)
        if schedule.until_quiet and last is not None and last.is_quiet:
            tell(f"idle {tally}")
            return 0
        # A clock that is set back must not make the fleet wait for long.
        late = (clock.now() - started).total_seconds()
        pause = min(max(schedule.every - late, 0), schedule.every) + tally.back_off(schedule.every)
        if schedule.most is not None and _age(tally, clock) + pause >= schedule.most:
            return _time_is_over(schedule, tally, last, tell)
        if not waiter.wait(pause):
            tell(f"stopped {tally}")
            return 0


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

    def fails(self, code: int, because: str, tell: Tell) -> None:
        """Count a run that failed for what lies outside of the program, and say so."""
        self.code = code
        self.failed += 1
        tell(f"run failed, the next one retries: {because}")

    def back_off(self, every: int) -> int:
        """Return how much later the next run begins where a defect ended the last ones."""
        return every * min((1 << self.defects) - 1, _MOST_BACK_OFF)

    def __str__(self) -> str:
        """Return how many runs there were, and how many failed."""
        failed = f" ({self.failed} failed)" if self.failed else ""
        return f"after {write_count(self.runs, 'run')}{failed}"


def _attempt(run: Callable[[], Run], tally: _Tally, tell: Tell) -> Run | None:
    """Run once; None where the run did not come to its end."""
    tally.runs += 1
    try:
        done = run()
    except Locked as locked:
        tell(f"{locked}; skipping this run")
        return None
    except FleetError as error:
        # A store that was there may come back; one that was never made no later run finds.
        if isinstance(error, StoreMissing) and tally.runs == 1:
            raise
        tally.fails(error.exit_code, str(error), tell)
        return None
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            # A file, or standard output, that a person can see to.
            tally.fails(1, f"{error.filename}: {error.strerror}", tell)
            return None
        # This run is over; the service goes on for those who wait for a machine.
        tally.defects += 1
        tally.failed += 1
        tally.code = 1
        if tally.defects == _MOST_DEFECTS:
            raise
        trace = "".join(format_exception(error))
        details = "as before" if trace == tally.defect else f"please report it:\n{trace}"
        tally.defect = trace
        tell(f"run failed by an internal error, the next one retries later; {details}")
        return None
    tally.defects = 0
    tally.code = done.code
    tally.failed += done.code != 0
    return done


def _age(tally: _Tally, clock: Clock) -> float:
    return (clock.now() - tally.began) / timedelta(seconds=1)


def _time_is_over(schedule: Schedule, tally: _Tally, last: Run | None, tell: Tell) -> int:
    pending = f": {', '.join(last.on_the_way)}" if last and last.on_the_way else ""
    busy = f"; not idle yet{pending}" if schedule.until_quiet else ""
    tell(f"stopped {tally}: {write_duration(schedule.most or 0)} are over{busy}")
    return tally.code or (1 if schedule.until_quiet else 0)


class Runs:
    """The runs of one loop: each with the fleet.yaml of its moment, if that is valid."""

    def __init__(
        self, args: argparse.Namespace, console: Console, config: Config, options: RunOptions
    ) -> None:
        self.shown: list[Callable[[Decision], None]] = []
        """Each is called with what a run planned, when it has ended."""
        self.watch: Callable[[], None] = lambda: None
        """Called when a run has its plan, and has given free machines to tickets."""
        self._args = args
        self._console = console
        self._config = config
        self._options = options
        self._refused = ""
        self._last_code: int | None = None

    @property
    def fleet(self) -> Fleet:
        """Return what fleet.yaml said when it was last read and valid."""
        return self._config.fleet

    def run(self) -> Run:
        """Apply once, with what fleet.yaml says now."""
        # Who asks to end meanwhile is heard after it: a file would be left open.
        with self._options.signals.changing():
            is_current = self._reload()
        self._options.signals.end_if_asked()
        applied = apply_once(
            self._config, self._args.file, self._console, self._show, self._options
        )
        for show in self.shown:
            show(applied.decision)
        code = applied.exit_code or (0 if is_current else 1)
        changed = any(
            each.created or each.deleted or each.forgotten or each.cleaned
            for each in applied.outcome.stacks
        )
        run = Run(code, tuple(find_on_the_way(applied.plan)), changed)
        # A loop runs for months, and Python seldom collects garbage by itself. A signal waits
        # until the collection has ended: what is raised during it is lost.
        with self._options.signals.changing():
            gc.collect()
        self._tell(applied, run)
        self._last_code = code
        return run

    def _reload(self) -> bool:
        """Load fleet.yaml again; False where this loop has to continue with what it has."""
        checked = check_file(self._args.file, utc_now().date())
        config = to_config(checked)
        if config is None:
            return self._keep_last(to_text(checked.findings, checked.document))
        if not _is_same(config.fleet, self._config.fleet):
            return self._keep_last(
                f"{self._args.file}: `fleet` or `state` changed; restart the loop to apply that"
            )
        if config.fleet == self._config.fleet:
            # What was worked out for it stays true.
            config = replace(config, fleet=self._config.fleet)
        if self._refused or config.fleet is not self._config.fleet:
            self._console.note(f"{self._args.file} changed; applying the new version")
            if self._options.pace.background:
                self._options.pace.background.seen = None
        self._config, self._refused = config, ""
        return True

    def _keep_last(self, why: str) -> bool:
        """Say once why the file as it is now cannot be used; the loop continues without it."""
        if why != self._refused:
            self._console.note(f"{why}\ncontinuing with the last valid {self._args.file}")
        self._refused = why
        return False

    def _show(self, plan: Plan) -> None:
        self.watch()
        if plan.actions and not self._args.json:
            self._console.out(plan_to_text(plan, colour=self._console.colour))

    def _tell(self, applied: Applied, run: Run) -> None:
        """Print what became of a run; one like that before it in a line."""
        plan, outcome = applied.plan, applied.outcome
        if self._args.json:
            self._console.out(outcome.model_dump_json())
            return
        if not plan.actions and not run.changed and run.code == self._last_code:
            pending = ", ".join(run.on_the_way) or "nothing"
            left = sum(each.count for each in plan.unserved)
            unserved = f"; unserved: {left} (see `fleet plan`)" if left else ""
            self._console.out(
                f"{plan.time:%H:%M:%S}Z nothing changed; pending: {pending}{unserved}"
            )
            return
        if not plan.actions and not run.changed:
            self._console.out(plan_to_text(plan, colour=self._console.colour))
        self._console.out(outcome_to_text(outcome, plan, colour=self._console.colour))


def _is_same(new: Fleet, old: Fleet) -> bool:
    """Say whether an edit leaves whose machines these are, and where that is recorded."""
    return (new.fleet, new.state) == (old.fleet, old.state)


def find_on_the_way(plan: Plan) -> Iterator[str]:
    """Yield what later runs still have to do, in a few words each; nothing where all is quiet.

    That is: actions of this run, and those that the next ones go on with; requests that have a
    machine or that a pool may make one for; workers that start, work, drain or are idle until
    their time is over. Not what min, spare, a pause or mode: observe leave as it is.
    """
    modes = {pool.pool: pool.mode for pool in plan.pools}
    held = [action for action in plan.withheld if modes.get(action.pool) != "observe"]
    actions = len(plan.actions) + len(plan.releases) + len(plan.unreleased) + len(held)
    actions += len(plan.resumes) + len(plan.promotions)
    if actions:
        yield write_count(actions, "action")
    served = sum(len(each.by_worker) + len(each.by_create) for each in plan.signatures)
    waiting = sum(
        each.count
        for each in plan.unserved
        if any(modes.get(blocked.pool) == "apply" for blocked in each.blocked)
    )
    if served + waiting:
        yield write_count(served + waiting, "waiting request")
    if plan.estimates:
        yield "unlisted requests"
    states = Counter(
        worker.state
        for worker in plan.workers
        if worker.verdict == "keep"
        and not worker.inactive
        and worker.reason not in _AT_REST
        and modes.get(worker.pool) != "observe"
    )
    for state, count in sorted(states.items()):
        yield write_count(count, f"{state} worker")
