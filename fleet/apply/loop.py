"""This module applies again and again, and says when that is over; each run is a plain apply.

A run that fails, or finds the fleet's lock taken, does not end the loop: the next one tries again.
"""

import argparse
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from traceback import format_exception

from fleet.apply.clocks import SystemClock
from fleet.apply.config import (
    Config,
    check_file,
    load_config,
    read_seconds,
    refuse_throwaway_state,
    to_config,
)
from fleet.apply.parallel import Background, Parallelism, default_jobs, early_helpers
from fleet.apply.run import Applied, RunOptions, apply_once
from fleet.apply.selection import Selection
from fleet.apply.signals import Signals
from fleet.engines.parallel import HelperProcess
from fleet.errors import FleetError, Locked, StoreMissing, WrongUsage
from fleet.model.plan import Plan, Reason
from fleet.model.saved_plan import LIMIT_BYTES, read_plan
from fleet.ports import Clock, Console, Tell, Waiter
from fleet.report.findings import to_text
from fleet.report.outcome import outcome_to_text
from fleet.report.plan_text import plan_to_text
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration
from fleet.state.files import LocalFiles

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
class Schedule:
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
    rhythm: Schedule, run: Callable[[], Run], clock: Clock, waiter: Waiter, tell: Tell
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


def _time_is_over(rhythm: Schedule, tally: _Tally, last: Run | None, tell: Tell) -> int:
    left = f": {', '.join(last.on_the_way)}" if last and last.on_the_way else ""
    loud = f"; it did not become quiet{left}" if rhythm.until_quiet else ""
    tell(f"{write_duration(rhythm.most or 0)} are over {tally.said}{loud}")
    return tally.code or (1 if rhythm.until_quiet else 0)


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def run_as_told(
    args: argparse.Namespace,
    console: Console,
    signals: Signals | None,
    process: HelperProcess | None,
) -> int:
    """Apply as the arguments say, with the helper's process that was started before."""
    rhythm = _rhythm(args)
    selection = _order(args)
    config = load_config(args, console)
    refuse_throwaway_state(config.fleet, args.file)
    early = nullcontext() if rhythm else early_helpers(config.fleet, args.file, process)
    with early as helpers:
        pace = Parallelism(args.jobs or default_jobs(), helpers)
        options = RunOptions(selection, pace, signals or Signals(), args.trust_clock)
        if rhythm is None:
            return run_once(config, args, console, options)
        return run_again(config, args, console, rhythm, options)


def _order(args: argparse.Namespace) -> Selection:
    """Return what is to be applied: the pools named, the plan that was saved."""
    if args.plan is None:
        return Selection(frozenset(args.pool))
    if args.every is not None:
        raise WrongUsage("a saved plan is applied once: leave --every out")
    content = LocalFiles().read(args.plan, LIMIT_BYTES)
    return Selection(frozenset(args.pool), read_plan(args.plan, content))


def _rhythm(args: argparse.Namespace) -> Schedule | None:
    """Return how often to apply; None: once."""
    if args.every is None:
        if args.most is not None or args.until_quiet:
            raise WrongUsage("--for and --until-quiet say when a loop ends: add --every")
        return None
    if args.trust_clock:
        raise WrongUsage("--trust-clock is for one run: apply once with it, then leave it out")
    most = None if args.most is None else read_seconds("--for", args.most)
    return Schedule(read_seconds("--every", args.every), most, until_quiet=args.until_quiet)


def run_once(
    config: Config, args: argparse.Namespace, console: Console, options: RunOptions
) -> int:
    """Apply once and return the exit code."""

    def show(plan: Plan) -> None:
        if not args.json:
            console.out(plan_to_text(plan, colour=console.colour))

    with options.signals.heard():
        applied = apply_once(config, args.file, console, show, options)
    if args.json:
        from fleet.report.json import value_to_json

        console.out(value_to_json(applied.outcome))
    else:
        console.out(outcome_to_text(applied.outcome, applied.plan, colour=console.colour))
    options.signals.end_if_asked()
    return applied.exit_code


def run_again(
    config: Config,
    args: argparse.Namespace,
    console: Console,
    rhythm: Schedule,
    options: RunOptions,
) -> int:
    """Apply in this rhythm until that is over; return the exit code."""
    runs = Runs(args, console, config, options)
    return keep_running(runs.run, rhythm, console, options.signals)


def keep_running(
    run: Callable[[], Run],
    rhythm: Schedule,
    console: Console,
    signals: Signals,
    background: Background | None = None,
) -> int:
    """Run in this rhythm until it is over or somebody asks to end; return the exit code.

    What goes on in the background is done first.
    """
    with signals.heard():
        try:
            code = keep_applying(rhythm, run, SystemClock(), signals, console.note)
        except KeyboardInterrupt:
            if signals.was_cut:
                raise
            if background is None or not background.under_way:
                console.note("ended as asked; nothing was being changed")
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
            f"ending once this is done: {', '.join(background.under_way)}; asked again, it is "
            "cancelled"
        )
    with signals.changing(background.cut):
        background.finish()
    for outcome in background.ended():
        error = f": {outcome.error}" if outcome.error else ""
        console.note(f"{outcome.pool}: {outcome.result}{error}")


class Runs:
    """The runs of one loop: each with the fleet.yaml of its moment, if that is valid."""

    def __init__(
        self, args: argparse.Namespace, console: Console, config: Config, options: RunOptions
    ) -> None:
        self.watch: Callable[[], None] = lambda: None
        """Called when a run knows what it is to do, and has given out what was free."""
        self._args = args
        self._console = console
        self._config = config
        self._terms = options
        self._refused = ""
        self._last_code: int | None = None

    @property
    def fleet(self) -> Fleet:
        """Return what fleet.yaml said when it was last read and valid."""
        return self._config.fleet

    def run(self) -> Run:
        """Apply once, with what fleet.yaml says now."""
        # Who asks to end meanwhile is heard after it: a file would be left open.
        with self._terms.signals.changing():
            is_current = self._reload()
        self._terms.signals.end_if_asked()
        applied = apply_once(self._config, self._args.file, self._console, self._show, self._terms)
        code = applied.exit_code or (0 if is_current else 1)
        changed = any(each.created or each.deleted for each in applied.outcome.stacks)
        run = Run(code, tuple(find_on_the_way(applied.plan)), changed)
        # A loop runs for months, and by itself it looks for garbage hardly ever. Whoever asks to
        # end meanwhile is heard after it: what is raised while garbage goes is lost.
        with self._terms.signals.changing():
            gc.collect()
        self._tell(applied, run)
        self._last_code = code
        return run

    def _reload(self) -> bool:
        """Take up what fleet.yaml and its included files say now.

        False where this loop cannot go on with that: then it goes on with what it has.
        """
        checked = check_file(self._args.file, SystemClock().now().date())
        config = to_config(checked)
        if config is None:
            return self._go_on(to_text(checked.findings, checked.document))
        if not _is_same(config.fleet, self._config.fleet):
            return self._go_on(
                f"{self._args.file} says another `fleet` or `state` now: to a running loop that "
                "is another fleet; end it and start it again"
            )
        if config.fleet == self._config.fleet:
            # What was worked out for it stays true.
            config = replace(config, fleet=self._config.fleet)
        if self._refused or config.fleet is not self._config.fleet:
            self._console.note(f"{self._args.file} has changed; from now on that is applied")
            if self._terms.pace.background:
                self._terms.pace.background.seen = None
        self._config, self._refused = config, ""
        return True

    def _go_on(self, why: str) -> bool:
        """Say once why what is written now is not taken up; the fleet is not left alone for it."""
        if why != self._refused:
            said = f"going on with what {self._args.file} said before"
            self._console.note(f"{why}\n{said}")
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
            on_the_way = ", ".join(run.on_the_way) or "nothing"
            left = sum(each.count for each in plan.unserved)
            unserved = f"; not served (`fleet plan` says why): {left}" if left else ""
            said = f"{plan.time:%H:%M:%S}Z nothing changed; on the way: {on_the_way}"
            self._console.out(said + unserved)
            return
        if not plan.actions and not run.changed:
            self._console.out(plan_to_text(plan, colour=self._console.colour))
        self._console.out(outcome_to_text(outcome, plan, colour=self._console.colour))


def _is_same(new: Fleet, old: Fleet) -> bool:
    """Say whether an edit leaves whose machines these are, and where that is recorded."""
    return (new.fleet, new.state) == (old.fleet, old.state)
