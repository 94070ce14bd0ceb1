"""Plan and apply the changes, once or repeatedly: `fleet apply`."""

import argparse
from dataclasses import replace

from fleet.apply.config import (
    Config,
    PlanResult,
    load_config,
    read_seconds,
    refuse_throwaway_state,
)
from fleet.apply.loop import Runs, Schedule, keep_running
from fleet.apply.metrics import metrics_of
from fleet.apply.parallel import Parallelism, default_jobs
from fleet.apply.plan import can_confirm, is_confirmed, observe_and_plan
from fleet.apply.run import RunOptions, apply_once
from fleet.apply.saved_plan import (
    LIMIT_BYTES,
    Selection,
    check_selection,
    find_changes,
    read_plan,
    selected_part,
)
from fleet.apply.timer import Signals
from fleet.cli.arguments import Parser, add_file, count, flag, option, repeated
from fleet.errors import FileUnreadable, WrongUsage
from fleet.model.plan import Plan
from fleet.ports import Console
from fleet.report.json import value_to_json
from fleet.report.outcome import outcome_blocks
from fleet.report.plan import plan_blocks
from fleet.report.terminal import text_for
from fleet.state.files import LocalFiles
from fleet.state.store import store_of


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet apply`."""
    add_file(parser)
    parser.add_argument(
        "plan",
        nargs="?",
        metavar="PLAN",
        help="a plan saved by `fleet plan --out`; exit with a diff if the current plan differs",
    )
    repeated(
        parser,
        "--pool",
        "NAME",
        "change only this pool; may be repeated; guards still count the whole fleet",
    )
    option(
        parser,
        "--jobs",
        "N",
        "maximum number of pools to change in parallel (default: one per CPU, 2 to 8)",
        kind=count(1, 1_000),
    )
    flag(parser, "--yes", "apply without asking for confirmation")
    flag(parser, "--json", "print the outcome as JSON; with --every, one line per run")
    option(
        parser,
        "--every",
        "DURATION",
        "repeat at this interval, for example 60s, until Ctrl-C or SIGTERM",
    )
    parser.add_argument(
        "--for",
        dest="most",
        metavar="DURATION",
        help="with --every: start no run after this time, for example 14m",
    )
    flag(parser, "--until-quiet", "with --every: stop when no changes are left")
    option(
        parser,
        "--metrics",
        "FILE",
        "write the metrics of each run to FILE, for node_exporter's textfile collector",
    )
    flag(
        parser,
        "--trust-clock",
        "apply once even if the clock differs from that of the last run or the server",
    )


def run(args: argparse.Namespace, console: Console, signals: Signals | None = None) -> int:
    """Apply and print the outcome; return the exit code of the outcome."""
    args.world = None
    schedule, selection = _schedule(args), _selection(args)
    config = load_config(args, console)
    refuse_throwaway_state(config.fleet, args.file)
    pace = Parallelism(args.jobs or default_jobs())
    options = RunOptions(selection, pace, signals or Signals(), args.trust_clock)
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
