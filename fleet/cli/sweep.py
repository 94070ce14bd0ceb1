"""Delete machines whose expiry has passed, and those left by image builds.

No pool has them and no worker runs there: one that is older than any build or upload takes was
left by a run that died.

It works from anywhere: without the store it takes the providers' own listings, and no lock. What
`fleet machine delete` names goes the same way, but never without the store.
"""

import argparse
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from fleet.apply.config import Config, load_config
from fleet.apply.decide import look
from fleet.apply.observe import Sources
from fleet.apply.parallel import Parallelism, default_jobs, pool_executor
from fleet.apply.sweep import sweep, sweep_machines, sweep_to_text
from fleet.apply.timer import Signals, SystemClock, check_servers, check_skew
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import Parser, add_file, add_json
from fleet.clouds.kinds import clouds_of
from fleet.errors import FleetError, StoreFailed, StoreMissing
from fleet.guard import guard
from fleet.images.publish import LEFT_AFTER
from fleet.model.facts import World
from fleet.model.plan import Plan, Reason
from fleet.ports import Console, Store
from fleet.report.json import plan_to_json, value_to_json
from fleet.report.outcome import outcome_to_text
from fleet.schema.model import Fleet


def arguments(parser: Parser) -> None:
    """Declare what `fleet sweep` takes."""
    add_file(parser)
    parser.add_argument(
        "--expired",
        action="store_true",
        required=True,
        help="delete machines whose expiry has passed; each apply extends it (`expire_after`)",
    )
    parser.add_argument(
        "--apply", action="store_true", help="delete them (default: only show them)"
    )
    add_json(parser)


def sweep_temporary(
    fleet: Fleet, file: str, now: datetime, console: Console, *, apply: bool
) -> bool:
    """Name them, and delete them where that is asked; False where not all could be told."""
    is_whole = True
    for name, cloud in clouds_of(fleet, file, SystemClock()).items():
        try:
            for each in cloud.temporary(now - LEFT_AFTER, delete=apply):
                done = "deleted" if apply else "would be deleted"
                console.note(f"{name}: {each}, left by an interrupted build or upload: {done}")
        except FleetError as error:
            console.note(f"{name}: temporary machines are unknown: {error}")
            is_whole = False
    return is_whole


@dataclass(frozen=True)
class Letting:
    """What goes, and how that is told."""

    decide: Callable[[Fleet, World], Plan]
    command: str
    """Deletes what was drained."""
    named: Collection[str] | None = None
    """The machines that a person named; None: it is a sweep, which does without a store."""

    def exit_code(self, plan: Plan) -> int:
        """Return what is said of a plan as a whole: what is unknown, what named machine stays."""
        stays = [
            worker
            for worker in plan.workers
            if worker.verdict == "keep"
            and worker.state != "busy"
            and (worker.reason is Reason.REQUESTED or worker.worker in (self.named or ()))
        ]
        return 4 if plan.is_refused or stays else 1 if plan.unknown else 0


_SWEEP = Letting(sweep, "fleet sweep --expired --apply")


def run(args: argparse.Namespace, console: Console) -> int:
    """Show what would go, or let it go; what a registry does not know to be idle stays."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    code = let_go(args, console, config, sources, _SWEEP)
    is_whole = sweep_temporary(
        config.fleet, args.file, SystemClock().now(), console, apply=args.apply
    )
    return code if is_whole else code or 1


def let_go(
    args: argparse.Namespace, console: Console, config: Config, sources: Sources, letting: Letting
) -> int:
    """Show what would go, or with --apply let it go; return the exit code."""
    return (_apply if args.apply else _show)(args, console, config, sources, letting)


def _show(
    args: argparse.Namespace, console: Console, config: Config, sources: Sources, letting: Letting
) -> int:
    plan = guard(config.fleet, letting.decide(config.fleet, look(config, sources, console)))
    console.out(
        plan_to_json(plan)
        if args.json
        else sweep_to_text(plan, colour=console.colour, named=letting.named)
    )
    return letting.exit_code(plan)


def _apply(
    args: argparse.Namespace, console: Console, config: Config, sources: Sources, letting: Letting
) -> int:
    clock, signals = SystemClock(), Signals()
    started = clock.now()
    sources = replace(sources, is_ending=signals.is_ending)
    executor = pool_executor(
        config.fleet, args.file, sources, Parallelism(default_jobs()), console.note
    )
    with (
        signals.heard(),
        _locked(sources.store, started, console, letting) as has_store,
        executor as (many, cut),
    ):
        world = look(config, sources, console)
        check_servers(world)
        plan = guard(config.fleet, letting.decide(config.fleet, world))
        if not args.json:
            console.out(
                sweep_to_text(plan, applies=True, colour=console.colour, named=letting.named)
            )
        with signals.changing(cut):
            outcome = sweep_machines(config.fleet, world, plan, many, console.note)
        if has_store and plan.actions:
            # Without a plan: nobody looked after the fleet, so this is no heartbeat.
            sources.store.record_run(
                started=started, ended=clock.now(), plan="", outcome=outcome.model_dump_json()
            )
    console.out(
        value_to_json(outcome)
        if args.json
        else outcome_to_text(outcome, plan, colour=console.colour, command=letting.command)
    )
    signals.end_if_asked()
    return outcome.exit_code or letting.exit_code(plan)


@contextmanager
def _locked(store: Store, now: datetime, console: Console, letting: Letting) -> Iterator[bool]:
    """Hold the fleet's lock; False where there is no store any more that has one."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.lock(lock_owner(), now))
            # Who sweeps when nobody looks after the fleet comes long after the last run.
            check_skew(store, now)
        except (StoreMissing, StoreFailed) as error:
            if letting.named is not None:
                raise
            console.note(f"sweeping without a lock: {error}")
            has_store = False
        else:
            has_store = True
        yield has_store
