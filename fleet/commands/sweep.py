"""This module lets go of what no run of apply vouches for any more; it only shows it by default.

It works from anywhere: without the store it takes the providers' own listings, and no lock.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.config import Config, load_config
from fleet.commands.crew import Pace, crewed, default_jobs
from fleet.commands.signals import Signals
from fleet.commands.sweep_temporary import sweep_temporary
from fleet.commands.wiring import lock_owner, look, wire
from fleet.errors import StoreFailed, StoreMissing
from fleet.guard import guard
from fleet.operate.clocks import check_servers, check_skew
from fleet.operate.observe import Sources
from fleet.operate.sweep import sweep_machines
from fleet.ports import Console
from fleet.ports.store import Store
from fleet.render.outcome_text import outcome_to_text
from fleet.render.sweep_text import sweep_to_text
from fleet.render.to_json import plan_to_json, value_to_json
from fleet.sweep import sweep

_COMMAND = "fleet sweep --expired --apply"


def run(args: argparse.Namespace, console: Console) -> int:
    """Show what would go, or let it go; what a registry does not know to be idle stays."""
    config = load_config(args, console)
    sources = wire(config.fleet, args.file)
    code = (_apply if args.apply else _show)(args, console, config, sources)
    base, now = Path(args.file).resolve().parent, SystemClock().now()
    is_whole = sweep_temporary(config.fleet, base, now, console, apply=args.apply)
    return code if is_whole else code or 1


def _show(args: argparse.Namespace, console: Console, config: Config, sources: Sources) -> int:
    plan = guard(config.fleet, sweep(config.fleet, look(config, sources, console)))
    console.out(plan_to_json(plan) if args.json else sweep_to_text(plan, colour=console.colour))
    return 4 if plan.is_refused else 1 if plan.unknown else 0


def _apply(args: argparse.Namespace, console: Console, config: Config, sources: Sources) -> int:
    clock, signals = SystemClock(), Signals()
    started = clock.now()
    sources = replace(sources, is_ending=signals.is_ending)
    crew = crewed(config.fleet, args.file, sources, Pace(default_jobs()), console.note)
    with (
        signals.heard(),
        _locked(sources.store, started, console) as has_store,
        crew as (many, cut),
    ):
        world = look(config, sources, console)
        check_servers(world)
        plan = guard(config.fleet, sweep(config.fleet, world))
        if not args.json:
            console.out(sweep_to_text(plan, applies=True, colour=console.colour))
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
        else outcome_to_text(outcome, plan, colour=console.colour, command=_COMMAND)
    )
    if signals.is_ending():
        raise KeyboardInterrupt
    return outcome.exit_code or (1 if plan.unknown else 0)


@contextmanager
def _locked(store: Store, now: datetime, console: Console) -> Iterator[bool]:
    """Hold the fleet's lock; False where there is no store any more that has one."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.lock(lock_owner(), now))
            # Who sweeps when nobody looks after the fleet comes long after the last run.
            check_skew(store, now)
        except (StoreMissing, StoreFailed) as error:
            console.note(f"sweeping without a lock: {error}")
            has_store = False
        else:
            has_store = True
        yield has_store
