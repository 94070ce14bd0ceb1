"""This module makes it so: lock, observe, plan, guard, change, record."""

import argparse
import os
from pathlib import Path

from fleet.commands.wiring import (
    SystemClock,
    configure_sims,
    load_config,
    lock_owner,
    look,
    plan_for,
    wire,
)
from fleet.errors import PlanRefused
from fleet.operate.apply import apply_plan
from fleet.plan import Outcome, Plan
from fleet.ports import Console
from fleet.render.outcome_text import outcome_to_text
from fleet.render.to_json import outcome_to_json
from fleet.render.to_text import plan_to_text
from fleet.schema.model import Fleet
from fleet.store.places import find_places


def run(args: argparse.Namespace, console: Console) -> int:
    """Apply what a plan made under the lock says, and print the outcome."""
    config = load_config(args, console)
    fleet = config.fleet
    _refuse_throwaway_state(fleet, args.file)
    clock = SystemClock()
    started = clock.now()
    sources = wire(fleet, args.file)
    with sources.store.lock(lock_owner(), started) as died:
        if died:
            console.note(f"took over the lock of {died}, which died; finishing what it began")
        sources.store.begin_run(started=started)
        configure_sims(fleet, sources)
        world = look(config, sources, console)
        plan = plan_for(config, world)
        if not args.json:
            console.out(plan_to_text(plan, colour=console.colour))
        outcome = apply_plan(fleet, world, plan, sources, console.note)
        sources.store.record_run(
            started=started,
            ended=clock.now(),
            plan=plan.digests.plan,
            outcome=outcome.model_dump_json(),
        )
    console.out(
        outcome_to_json(outcome)
        if args.json
        else outcome_to_text(outcome, plan, colour=console.colour)
    )
    return _exit_code(outcome, plan)


def _exit_code(outcome: Outcome, plan: Plan) -> int:
    """Return the outcome's code; 1 also where a source was silent or a person has to look."""
    return outcome.exit_code or (1 if plan.unknown or plan.attention else 0)


def _refuse_throwaway_state(fleet: Fleet, config: str) -> None:
    """Refuse state that a CI job would lose with its checkout."""
    checkout = os.environ.get("CI_PROJECT_DIR")
    if not checkout:
        return
    for path in find_places(fleet, config).local():
        if path.resolve().is_relative_to(Path(checkout).resolve()):
            raise PlanRefused(
                f"refused: state at {path} is inside this job's checkout and would be lost with "
                "it; set state.backend and state.store to a place that outlives the job "
                "(docs/how-to/run-in-gitlab.md)"
            )
