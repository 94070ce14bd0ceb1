"""List, delete and forget machines; print their console."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Literal

from fleet.apply.config import load_config
from fleet.apply.consoles import end_of, read_console
from fleet.apply.forget import forget_machine
from fleet.apply.plan import look, note_clock, observe_and_plan
from fleet.apply.pool import confirm_all
from fleet.apply.record import RunLog
from fleet.apply.sweep import Deletion, MachineSelection, delete_machines, run_deletion
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import Parser, add_json, add_verb, add_verbs, add_world, flag, repeated
from fleet.cli.output import show
from fleet.clock import utc_now
from fleet.errors import FleetError, WrongUsage
from fleet.explain.worker import facts_of_workers
from fleet.model.facts import World
from fleet.model.outcome import Outcome, StackOutcome
from fleet.model.plan import Plan
from fleet.model.values import Moment, Value
from fleet.planner.units import UnitState
from fleet.ports import Console
from fleet.report.document import Block, Style, StyledText, line
from fleet.report.status import Status, WorkerStatus, status_of, worker_table
from fleet.schema.findings import nearest
from fleet.schema.model import Fleet
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
        help="only those in this state; may be repeated. `up`: connected, busy or not; `ready`: "
        f"idle; else one of {', '.join(STATES[2:])}",
    )
    add_world(listing)
    add_json(listing)
    delete = add_verb(
        actions, "delete", "drain machines, and delete those that run nothing", _delete
    )
    delete.add_argument(
        "machine", nargs="*", metavar="NAME", help="its name, as plan and status show it"
    )
    of_pool = "machines of this pool; with --unused or --all; may be repeated"
    repeated(delete, "--pool", "NAME", of_pool)
    which = delete.add_mutually_exclusive_group()
    flag(which, "--unused", "delete machines that run nothing")
    flag(which, "--all", "delete all machines; only drain busy ones")
    flag(delete, "--apply", "delete them (default: only show them)")
    add_json(delete)
    console = add_verb(
        actions, "console", "print the end of what a machine wrote at boot", _console
    )
    console.add_argument("machine", metavar="NAME", help="its name, as plan and status show it")
    gone = "remove a machine that its provider no longer has from its stack"
    forget_it = add_verb(actions, "forget", gone, forget)
    forget_it.add_argument("machine", metavar="NAME", help="its name, as plan and status show it")


class Machines(Value):
    """Machines, as `fleet machine list --json` prints them."""

    format: Literal["fleet-machines-2"] = "fleet-machines-2"
    fleet: str
    time: Moment
    machines: tuple[WorkerStatus, ...]
    unlisted: tuple[str, ...]
    """Pools whose machines are unknown."""


def _machine_blocks(status: Status) -> Iterator[Block]:
    """Yield the machines of a status as a table."""
    yield worker_table(status) if status.workers else line("No such machines.")
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
"""Additional values of `--state`, each for several states."""
_SHOWN = 12


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
    named, by_pool = bool(args.machine), bool(args.pool)
    if named == by_pool or by_pool != (args.unused or args.all):
        raise WrongUsage(
            "choose machines by name, or by --pool NAME with --unused (those that run nothing) "
            "or --all (busy ones are only drained)"
        )
    choice = MachineSelection(frozenset(args.machine), frozenset(args.pool), unused=args.unused)
    config = load_config(args, console)

    def decide_on(fleet: Fleet, world: World) -> Plan:
        plan = delete_machines(fleet, world, choice)
        _check_pools(plan, args.pool)
        _check_machines(plan, args.machine)
        return plan

    deletion = Deletion(decide_on, "fleet apply", choice.names)
    return run_deletion(args, console, config, wire(config.fleet, args.file), deletion)


def _console(args: argparse.Namespace, console: Console) -> int:
    """Print the console output stored with a hold, else the provider's current one."""
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
    """Raise FleetError if one of these names is unknown."""
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
    """Remove a missing machine from its stack, under the lock, and record that."""
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
