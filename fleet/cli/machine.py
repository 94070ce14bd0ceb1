"""List, delete and forget machines; print the console output of a machine."""

import argparse
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from fleet.apply.config import load_config
from fleet.apply.plan import look, note_clock, observe_and_plan
from fleet.apply.pool import confirm_all, end_of, read_console
from fleet.apply.rebuild import forget_machine
from fleet.apply.record import RunLog
from fleet.apply.sweep import (
    CreationWindow,
    Deletion,
    MachineSelection,
    delete_machines,
    run_deletion,
    sweep,
    undo_creations,
)
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import (
    Parser,
    add_json,
    add_verb,
    add_verbs,
    add_world,
    duration,
    flag,
    option,
    repeated,
)
from fleet.cli.output import show
from fleet.clock import SystemClock, utc_now
from fleet.clouds.kinds import clouds_of
from fleet.errors import FleetError, WrongUsage
from fleet.explain.worker import facts_of_workers
from fleet.model.facts import World
from fleet.model.images import LEFT_AFTER
from fleet.model.outcome import Outcome, StackOutcome
from fleet.model.plan import Plan
from fleet.model.values import Moment, Value
from fleet.planner.units import UnitState
from fleet.ports import Console
from fleet.report.document import Block, Style, StyledText, line
from fleet.report.status import Status, WorkerStatus, status_of, worker_table
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet
from fleet.state.store import Store
from fleet.words import figures as words

STATES = ("up", "ready", *(state.value for state in UnitState), "unknown")


def arguments(parser: Parser) -> None:
    """Declare the arguments of `fleet machine`."""
    actions = add_verbs(parser)
    listing = add_verb(actions, "list", "list machines: state, work, age, cost", _list)
    repeated(listing, "--pool", "NAME", "only machines of this pool; may be repeated")
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        choices=STATES,
        metavar="STATE",
        help="only machines in this state; may be repeated. `up`: connected, busy or not; "
        f"`ready`: idle; others: {', '.join(STATES[2:])}",
    )
    add_world(listing)
    add_json(listing)
    delete = add_verb(actions, "delete", "drain machines and delete idle ones", _delete)
    _add_selectors(delete)
    console = add_verb(actions, "console", "print the last console lines of a machine", _console)
    console.add_argument("machine", metavar="NAME", help="name, as `fleet status` shows it")
    gone = "remove a machine from its stack after its provider lost it"
    forget_it = add_verb(actions, "forget", gone, forget)
    forget_it.add_argument("machine", metavar="NAME", help="name, as `fleet status` shows it")


def _add_selectors(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the machines to delete."""
    parser.add_argument(
        "machine", nargs="*", metavar="NAME", help="name, as `fleet status` shows it"
    )
    of_pool = "select machines of this pool, or limit --run and --since to it; may be repeated"
    repeated(parser, "--pool", "NAME", of_pool)
    which = parser.add_mutually_exclusive_group()
    flag(which, "--unused", "with --pool: idle machines")
    flag(which, "--all", "with --pool: idle machines, and drain busy ones")
    option(
        which,
        "--run",
        "ID",
        "machines created by this run that were never busy; ID: its start in `fleet log`",
    )
    option(
        which,
        "--since",
        "TIME",
        "machines created within this time, for example 30m, that were never busy",
        kind=duration,
    )
    expired = "expired machines (`expire_after`), and remains of image builds"
    flag(which, "--expired", expired)
    flag(parser, "--apply", "delete without asking; required without a terminal")
    add_json(parser)


class Machines(Value):
    """Machines, as `fleet machine list --json` prints them."""

    format: Literal["fleet-machines-2"] = "fleet-machines-2"
    fleet: str
    time: Moment
    machines: tuple[WorkerStatus, ...]
    unlisted: tuple[str, ...]
    """Pools whose machines are unknown."""


def _machine_blocks(status: Status) -> Iterator[Block]:
    """Yield the machines of a status as a table, then the unknown facts."""
    if status.workers or not status.unknown:
        yield worker_table(status) if status.workers else line("No such machines.")
    yield from (line(StyledText("unknown: ", Style.YELLOW), text) for text in status.unknown)
    if status.unlisted:
        which = words.named("pool", status.unlisted)
        yield line(StyledText(f"The machines of {which} are unknown.", Style.YELLOW))


GROUPS = {
    "up": {
        UnitState.IDLE,
        UnitState.BUSY,
        UnitState.ASSUMED,
        UnitState.DRAINING,
        UnitState.DEAF,
        UnitState.STATIC,
    },
    "ready": {UnitState.IDLE, UnitState.ASSUMED},
}
"""Value of `--state` that selects several states, to these states."""
_SHOWN = 12
_MAX_RUNS = 10_000
_MAX_CREATED = 10_000


def _list(args: argparse.Namespace, console: Console) -> int:
    decision = observe_and_plan(args, console)
    note_clock(decision, console)
    plan = decision.plan
    _check_pools(plan, args.pool)
    status = status_of(plan, facts_of_workers(decision.config.fleet, decision.world))
    states = {state for word in args.state for state in GROUPS.get(word, {word})}
    shown = status.altered(
        workers=tuple(
            each
            for each in status.workers
            if (not args.pool or each.pool in args.pool) and (not states or each.state in states)
        ),
        unlisted=tuple(p for p in status.unlisted if not args.pool or p in args.pool),
    )
    machines = Machines(
        fleet=shown.fleet, time=shown.time, machines=shown.workers, unlisted=shown.unlisted
    )
    show(args, console, machines, _machine_blocks(shown), piped=None)
    return 1 if shown.unlisted else 0


def _delete(args: argparse.Namespace, console: Console) -> int:
    _require_one_way(args)
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    if args.expired:
        leftovers = partial(delete_leftovers, config.fleet, args.file, utc_now(), console)
        deletion = Deletion(
            sweep, "fleet machine delete --expired --apply", delete_leftovers=leftovers
        )
    elif args.unused or args.all or args.machine:
        deletion = _chosen(args)
    else:
        deletion = _select_created(args, sources.store)
    return run_deletion(args, console, config, sources, deletion)


def _require_one_way(args: argparse.Namespace) -> None:
    """Raise WrongUsage unless the options select machines in exactly one way."""
    is_by_pool = args.unused or args.all
    is_by_time = args.run is not None or args.since is not None
    is_one_way = sum((bool(args.machine), is_by_pool, is_by_time, args.expired)) == 1
    fits_pool = (is_by_pool or is_by_time) if args.pool else not is_by_pool
    if not (is_one_way and fits_pool):
        raise WrongUsage(
            "select machines in one way: by NAME; by --pool NAME with --unused (those that run "
            "nothing) or --all (busy ones are only drained); by --run ID or --since TIME; or by "
            "--expired"
        )


def _chosen(args: argparse.Namespace) -> Deletion:
    """Return the deletion of named machines, or of the machines of some pools."""
    choice = MachineSelection(frozenset(args.machine), frozenset(args.pool), unused=args.unused)

    def decide_on(fleet: Fleet, world: World) -> Plan:
        plan = delete_machines(fleet, world, choice)
        _check_pools(plan, args.pool)
        _check_machines(plan, args.machine)
        return plan

    return Deletion(decide_on, "fleet apply", choice.names)


def _select_created(args: argparse.Namespace, store: Store) -> Deletion:
    """Return the deletion of the machines that a run, or all runs of a time span, created."""
    now = utc_now()
    if args.run is None:
        since, until = now - timedelta(seconds=args.since), now
    else:
        since, until = _span_of_run(store, args.run, now)
    latest: dict[str, datetime] = {}
    for attempt in store.attempts(_MAX_CREATED):
        latest[attempt.worker] = max(attempt.at, latest.get(attempt.worker, attempt.at))
    # If a later run reused the name, the machine is another one.
    made = frozenset(worker for worker, at in latest.items() if since <= at <= until)
    window = CreationWindow(since, until, made, frozenset(args.pool))

    def decide_on(fleet: Fleet, world: World) -> Plan:
        plan = undo_creations(fleet, world, window)
        _check_pools(plan, args.pool)
        return plan

    return Deletion(decide_on, "fleet apply", frozenset(), may_stay=True)


def _span_of_run(store: Store, run: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the start and end of a run; an interrupted run ends when the next run starts."""
    runs = store.last_runs(_MAX_RUNS)
    starts = [each["started"] for each in runs]
    wanted = run.replace(" UTC", "").replace(" ", "T").removesuffix("Z")
    found = [number for number, start in enumerate(starts) if start.startswith(wanted)]
    if len(found) != 1:
        what = f"{len(found)} runs started" if found else "no run started"
        latest = ", ".join(starts[:3]) or "none"
        raise FleetError(f"nothing was changed: {what} at {run}; the latest: {latest}")
    (number,) = found
    ended = runs[number]["ended"] or (starts[number - 1] if number else "")
    since = datetime.fromisoformat(starts[number])
    return since, datetime.fromisoformat(ended) if ended else now


def delete_leftovers(
    fleet: Fleet,
    file: str,
    now: datetime,
    console: Console,
    apply: bool,  # noqa: FBT001 - the last argument of a partial
) -> bool:
    """Print machines of interrupted image builds; with `apply`, delete them; False if unknown.

    These machines have no pool and no worker. A machine that is older than the longest build or
    upload is left over. The result is False if the machines of a provider are unknown.
    """
    is_whole = True
    for name, cloud in clouds_of(fleet, file, SystemClock()).items():
        try:
            for each in cloud.temporary(now - LEFT_AFTER, delete=apply):
                done = "deleted" if apply else "`--apply` deletes it"
                console.note(f"{name}: {each}, left by an interrupted build or upload: {done}")
        except FleetError as error:
            console.note(f"{name}: temporary machines are unknown: {error}")
            is_whole = False
    return is_whole


def _console(args: argparse.Namespace, console: Console) -> int:
    """Print the console output that was stored with a hold, or else the current output."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    text = sources.store.console(f"hold {args.machine}")
    if not text:
        world = look(config, sources, console)
        listed = {machine.name: (provider, machine.id) for provider, machine in world.machines()}
        _check("machine", [args.machine], listed)
        text = end_of(read_console(sources, *listed[args.machine]), _LINES)
    console.out(text or f"{args.machine} has written nothing yet")
    return 0


_LINES = 200


def _check_pools(plan: Plan, names: Iterable[str]) -> None:
    _check("pool", names, {pool.pool for pool in plan.pools})


def _check_machines(plan: Plan, names: Iterable[str]) -> None:
    known = {each.worker for each in plan.workers}
    _check("machine", names, known, "; ".join(plan.unknown))


def _check(what: str, names: Iterable[str], known: Iterable[str], unknown: str = "") -> None:
    """Raise FleetError, with a similar name or the known names, if a name is unknown."""
    them = sorted(known)
    for name in names:
        if name in them:
            continue
        meant = nearest(name, them)
        shown = ", ".join(them[:_SHOWN]) + ", …" * (len(them) > _SHOWN)
        hint = f"did you mean {meant}?" if meant else f"known: {shown or 'none'}"
        trouble = f"; some machines are unknown: {unknown}" if unknown else ""
        raise FleetError(f"nothing was changed: no {what} {name}; {hint}{trouble}")


def forget(args: argparse.Namespace, console: Console) -> int:
    """Remove a missing machine from its stack, under the lock, and log this as a run."""
    config = load_config(args, console)
    started = utc_now()
    sources = wire(config.fleet, args.file)
    with sources.store.lock(lock_owner(), started):
        world = look(config, sources, console)
        pool, queue = forget_machine(config.fleet, world, args.machine, sources)
        outcome = StackOutcome(pool=pool, result="applied", forgotten=(args.machine,))
        RunLog(sources.store, started, "forget").record(Outcome(plan="", stacks=(outcome,)))
        confirm_all(sources, console.note)
    off = f"its worker was disabled at queue {queue}" if queue else "nothing else changed"
    console.out(
        f"removed machine {args.machine} from the stack of pool {pool}; {off}; the next `fleet "
        "apply` creates another if needed"
    )
    return 0
