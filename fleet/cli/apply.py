"""Plan and apply the changes, once or repeatedly on a schedule: `fleet apply`.

Each run is an ordinary apply. If a run fails, or another process has the fleet's lock, the loop
continues with the next run.
"""

import argparse
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from traceback import format_exception

from fleet.apply.config import (
    Config,
    PlanResult,
    check_file,
    load_config,
    read_seconds,
    refuse_throwaway_state,
    to_config,
)
from fleet.apply.metrics import metrics_of
from fleet.apply.parallel import Background, default_jobs
from fleet.apply.plan import can_confirm, is_confirmed, observe_and_plan
from fleet.apply.run import Applied, RunOptions, apply_once
from fleet.apply.saved_plan import (
    LIMIT_BYTES,
    Selection,
    check_selection,
    find_changes,
    read_plan,
    selected_part,
)
from fleet.apply.timer import Signals
from fleet.cli.arguments import FILE, argument, count, flag, option, repeated
from fleet.clock import SystemClock, utc_now
from fleet.errors import FileUnreadable, FleetError, Locked, StoreMissing, WrongUsage
from fleet.model.plan import Plan, Reason
from fleet.ports import Clock, Console, Tell, Waiter
from fleet.report.findings import to_text
from fleet.report.json import value_to_json
from fleet.report.outcome import outcome_blocks
from fleet.report.plan import plan_blocks
from fleet.report.terminal import text_for
from fleet.schema.model import Fleet
from fleet.schema.units import write_count, write_duration
from fleet.state.files import LocalFiles
from fleet.state.store import store_of
from fleet.words.runs import describe_retry

_MAX_DEFECTS = 6
"""Consecutive runs that failed by a defect of fleet, after which the loop stops."""
_MAX_BACK_OFF_INTERVALS = 3
"""Maximum additional intervals before the next run; machines cost money during the pause."""
_QUIET_REASONS = frozenset(
    {
        Reason.KEPT_FOR_MIN,
        Reason.KEPT_SPARE,
        Reason.STATIC,
        Reason.POOL_PAUSED,
        Reason.NO_REGISTRY,
        Reason.MACHINE_GONE,
    }
)
"""Reasons of kept workers that are neither pending work nor about to be deleted."""


@dataclass(frozen=True)
class Schedule:
    """Interval between runs, and maximum duration of the loop, in seconds."""

    every: int
    most: int | None = None
    """Maximum seconds from the loop's start to the start of a run; None if unlimited."""
    until_quiet: bool = False


@dataclass(frozen=True)
class ApplyResult:
    """The result of one apply: its exit code, and short descriptions of pending work."""

    code: int
    on_the_way: tuple[str, ...] = ()
    changed: bool = False
    """True if the apply created, deleted, forgot or cleaned a machine."""

    @property
    def is_quiet(self) -> bool:
        """Return True if the apply succeeded and no work is pending."""
        return self.code == 0 and not self.on_the_way


def keep_running(
    run: Callable[[], ApplyResult],
    schedule: Schedule,
    console: Console,
    signals: Signals,
    background: Background | None = None,
) -> int:
    """Apply on this schedule until it ends or a stop signal arrives; return the exit code.

    Waits for background work before it returns.
    """
    with signals.heard():
        try:
            # The interrupt of an earlier signal may have been lost in a callback.
            signals.end_if_asked()
            code = keep_applying(schedule, run, SystemClock(), signals, console.note)
        except KeyboardInterrupt:
            if signals.was_cut:
                raise
            if background is None or not background.under_way:
                console.note("stopped")
            code = 0
        finally:
            if background is not None:
                if background.under_way:
                    console.note(
                        f"stopping once these are done: {', '.join(background.under_way)}; a "
                        "second signal cancels them"
                    )
                with signals.changing(background.cut):
                    background.finish()
                for outcome in background.ended():
                    error = f": {outcome.error}" if outcome.error else ""
                    console.note(f"{outcome.pool}: {outcome.result}{error}")
    if signals.was_cut:
        raise KeyboardInterrupt
    return code


def keep_applying(
    schedule: Schedule, run: Callable[[], ApplyResult], clock: Clock, waiter: Waiter, tell: Tell
) -> int:
    """Apply on this schedule until it ends or the waiter stops it; return the exit code.

    The exit code is that of the last run, since each run retries the failures of earlier runs. It
    is 0 after a stop signal, and 1 if `until_quiet` is set and work is still pending.
    """
    tally = _Tally(began=clock.now())
    while True:
        started = clock.now()
        last = _run_once(run, tally, tell)
        if schedule.until_quiet and last is not None and last.is_quiet:
            tell(f"idle {tally}")
            return 0
        # A clock that was set back must not cause a long pause.
        late = (clock.now() - started).total_seconds()
        pause = min(max(schedule.every - late, 0), schedule.every) + tally.back_off(schedule.every)
        if (
            schedule.most is not None
            and (clock.now() - tally.began).total_seconds() + pause >= schedule.most
        ):
            pending = f": {', '.join(last.on_the_way)}" if last and last.on_the_way else ""
            busy = f"; not idle yet{pending}" if schedule.until_quiet else ""
            tell(f"stopped {tally}: {write_duration(schedule.most or 0)} are over{busy}")
            return tally.code or (1 if schedule.until_quiet else 0)
        if not waiter.wait(pause):
            tell(f"stopped {tally}")
            return 0


@dataclass
class _Tally:
    """Counts of the runs and failures of a loop so far."""

    began: datetime
    runs: int = 0
    failed: int = 0
    code: int = 1
    """Exit code of the last run that had the lock; 1 before the first run."""
    defects: int = 0
    """Consecutive runs that failed by a defect of fleet."""
    defect: str = ""
    """Traceback of the last reported defect of fleet."""

    def fails(self, code: int, trouble: str, tell: Tell) -> None:
        """Count and report a run that failed for a reason outside fleet."""
        self.code = code
        self.failed += 1
        tell(describe_retry(trouble))

    def back_off(self, every: int) -> int:
        """Return the additional seconds before the next run. Consecutive defects increase them."""
        return every * min((1 << self.defects) - 1, _MAX_BACK_OFF_INTERVALS)

    def __str__(self) -> str:
        """Return the number of runs and of failed runs as text."""
        failed = f" ({self.failed} failed)" if self.failed else ""
        return f"after {write_count(self.runs, 'run')}{failed}"


def _run_once(run: Callable[[], ApplyResult], tally: _Tally, tell: Tell) -> ApplyResult | None:
    """Return the result of one run; None if the run did not complete."""
    tally.runs += 1
    try:
        done = run()
    except Locked as locked:
        tell(f"{locked}; skipping this run")
        return None
    except FleetError as error:
        # A store can become available again, but a store that was never created cannot.
        if isinstance(error, StoreMissing) and tally.runs == 1:
            raise
        tally.fails(error.exit_code, str(error), tell)
        return None
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            # The operator can fix a file or standard output.
            tally.fails(1, f"{error.filename}: {error.strerror}", tell)
            return None
        # Only this run fails: the service continues for clients that wait for a machine.
        tally.defects += 1
        tally.failed += 1
        tally.code = 1
        if tally.defects == _MAX_DEFECTS:
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


class Runs:
    """The runs of one loop, each of which uses the latest valid fleet.yaml."""

    def __init__(
        self, args: argparse.Namespace, console: Console, config: Config, options: RunOptions
    ) -> None:
        self.shown: list[Callable[[PlanResult], None]] = []
        """Functions that are called with the plan of each run after the run."""
        self.watch: Callable[[], None] = lambda: None
        """Called when a run has its plan, after idle machines were assigned to tickets."""
        self._args = args
        self._console = console
        self._config = config
        self._options = options
        self._refused = ""
        self._last_code: int | None = None

    @property
    def fleet(self) -> Fleet:
        """Return the latest valid configuration."""
        return self._config.fleet

    def run(self) -> ApplyResult:
        """Apply once with the latest valid fleet.yaml, and return the result."""
        # Defer a stop signal, which would leave a file open.
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
        run = ApplyResult(code, tuple(find_on_the_way(applied.plan)), changed)
        # A loop runs for months, and Python rarely collects garbage by itself. Defer a signal
        # until the collection has ended, since Python loses an exception during it.
        with self._options.signals.changing():
            gc.collect()
        self._print_run(applied, run)
        self._last_code = code
        return run

    def _reload(self) -> bool:
        """Load fleet.yaml again; return False if the loop has to use an earlier version."""
        checked = check_file(self._args.file, utc_now().date())
        config = to_config(checked)
        if config is None:
            return self._keep_last(to_text(checked.findings, checked.document))
        was = self._config.fleet
        if (config.fleet.fleet, config.fleet.state) != (was.fleet, was.state):
            return self._keep_last(
                f"{self._args.file}: `fleet` or `state` changed; restart the loop to apply that"
            )
        if config.fleet == self._config.fleet:
            # Keep the equal object, since it has cached values.
            config = replace(config, fleet=self._config.fleet)
        if self._refused or config.fleet is not self._config.fleet:
            self._console.note(f"{self._args.file} changed; applying the new version")
            if self._options.background:
                self._options.background.seen = None
        self._config, self._refused = config, ""
        return True

    def _keep_last(self, why: str) -> bool:
        """Print, once per reason, why the last valid fleet.yaml stays in use; return False."""
        if why != self._refused:
            self._console.note(f"{why}\ncontinuing with the last valid {self._args.file}")
        self._refused = why
        return False

    def _show(self, plan: Plan) -> None:
        self.watch()
        if plan.actions and not self._args.json:
            self._console.out(text_for(self._console, plan_blocks(plan)))

    def _print_run(self, applied: Applied, run: ApplyResult) -> None:
        """Print the result of a run, in one line if no work changed since the last run."""
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
            self._console.out(text_for(self._console, plan_blocks(plan)))
        self._console.out(text_for(self._console, outcome_blocks(outcome, plan)))


def find_on_the_way(plan: Plan) -> Iterator[str]:
    """Yield short descriptions of pending work; no description if the fleet is quiet.

    Actions of this run and later runs are pending, and requests that have or will get a machine.
    Workers that start, work, drain or wait for their idle time-out are pending too. Workers that
    `min`, `spare`, a pause or `mode: observe` keeps are not.
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
        and worker.reason not in _QUIET_REASONS
        and modes.get(worker.pool) != "observe"
    )
    for state, number in sorted(states.items()):
        yield write_count(number, f"{state} worker")


ARGUMENTS = (
    FILE,
    argument(
        "plan",
        nargs="?",
        metavar="PLAN",
        help="a plan saved by `fleet plan --out`; exit with a diff if the current plan differs",
    ),
    repeated(
        "--pool",
        "NAME",
        "change only this pool; may be repeated; guards still count the whole fleet",
    ),
    option(
        "--jobs",
        "N",
        "maximum number of pools to change in parallel (default: one per CPU, 2 to 8)",
        kind=count(1, 1_000),
    ),
    flag("--yes", "apply without asking for confirmation"),
    flag("--json", "print the outcome as JSON; with --every, one line per run"),
    option(
        "--every",
        "DURATION",
        "repeat at this interval, for example 60s, until Ctrl-C or SIGTERM",
    ),
    argument(
        "--for",
        dest="most",
        metavar="DURATION",
        help="with --every: start no run after this time, for example 14m",
    ),
    flag("--until-quiet", "with --every: stop when no changes are left"),
    option(
        "--metrics",
        "FILE",
        "write the metrics of each run to FILE, for node_exporter's textfile collector",
    ),
    flag(
        "--trust-clock",
        "apply once even if the clock differs from that of the last run or the server",
    ),
)


def run(args: argparse.Namespace, console: Console, signals: Signals | None = None) -> int:
    """Apply and print the outcome; return the exit code of the outcome."""
    args.world = None
    schedule, selection = _schedule(args), _selection(args)
    config = load_config(args, console)
    refuse_throwaway_state(config.fleet, args.file)
    jobs = args.jobs or default_jobs()
    options = RunOptions(selection, jobs, signals or Signals(), args.trust_clock)
    if schedule is None:
        return _apply_once(config, args, console, options)
    runs = Runs(args, console, config, options)
    if args.metrics:
        runs.shown.append(lambda decision: _write_metrics(decision, args, console))
    return keep_running(runs.run, schedule, console, options.signals)


def _selection(args: argparse.Namespace) -> Selection:
    """Return the selection of pools, or of a saved plan, from the arguments."""
    if args.plan is None:
        return Selection(frozenset(args.pool))
    if args.every is not None:
        raise WrongUsage("a saved plan is applied once: remove --every")
    content = LocalFiles().read(args.plan, LIMIT_BYTES)
    return Selection(frozenset(args.pool), read_plan(args.plan, content))


def _schedule(args: argparse.Namespace) -> Schedule | None:
    """Return the schedule of --every; None without --every."""
    if args.every is None:
        if args.most is not None or args.until_quiet:
            raise WrongUsage("--for and --until-quiet need --every")
        return None
    if args.trust_clock:
        raise WrongUsage("--trust-clock is for one run: remove --every")
    most = None if args.most is None else read_seconds("--for", args.most)
    return Schedule(read_seconds("--every", args.every), most, until_quiet=args.until_quiet)


def _apply_once(
    config: Config, args: argparse.Namespace, console: Console, options: RunOptions
) -> int:
    """Apply once and return the exit code; 1 if the user declines, 130 if interrupted."""
    asks = can_confirm(console) and not (args.yes or args.json or args.plan)
    if asks:
        try:
            saved = _ask(args, console, options.selection)
        except KeyboardInterrupt:
            console.note("fleet: interrupted: nothing was changed")
            return 130
        if saved is None:
            console.note("nothing was changed")
            return 1
        options = replace(options, selection=saved)

    def show(plan: Plan) -> None:
        is_shown = asks and not find_changes(options.selection, plan)
        if not (args.json or is_shown):
            console.out(text_for(console, plan_blocks(plan)))

    with options.signals.heard():
        applied = apply_once(config, args.file, console, show, options)
    if args.metrics:
        _write_metrics(applied.decision, args, console)
    if args.json:
        console.out(value_to_json(applied.outcome))
    else:
        console.out(text_for(console, outcome_blocks(applied.outcome, applied.plan)))
    options.signals.end_if_asked()
    return applied.exit_code


def _ask(args: argparse.Namespace, console: Console, selection: Selection) -> Selection | None:
    """Show the plan; return a selection of exactly this plan, or None if the user declines.

    The lock is released while the user reads, so `apply` refuses if the plan changes meanwhile.
    """
    decision = observe_and_plan(args, console)
    if decision.store is not None:
        # Check first: a plan for an unknown pool would look like a plan without changes.
        check_selection(selection, decision.config.fleet, decision.store)
    part = selected_part(selection, decision.plan)
    console.out(text_for(console, plan_blocks(part)))
    # A plan without actions needs no answer, but may change before the lock is taken.
    is_accepted = part.is_quiet or is_confirmed(console, "Apply this plan?")
    return replace(selection, saved=decision.plan) if is_accepted else None


def _write_metrics(decision: PlanResult, args: argparse.Namespace, console: Console) -> None:
    """Write the metrics; report a failure without failing the run."""
    fleet = decision.config.fleet
    store = store_of(fleet, args.file)
    try:
        LocalFiles().write_text(args.metrics, metrics_of(decision, store))
    except FileUnreadable as error:
        console.note(f"fleet: warning: no metrics: {error}")
