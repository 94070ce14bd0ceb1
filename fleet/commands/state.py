"""This module looks after what must outlive a run."""

import argparse
import json
from collections.abc import Callable

from fleet.commands.config import load_config
from fleet.commands.machine import forget
from fleet.commands.state_carry import export_state, import_state
from fleet.commands.state_rebuild import orphans, rebuild
from fleet.commands.state_unlock import unlock
from fleet.commands.wiring import wire
from fleet.errors import FleetError, PlanRefused
from fleet.facts import Stack
from fleet.ports import Console, Engine, StackRef
from fleet.render.journal import run_to_text, run_to_value
from fleet.render.terminal import clean
from fleet.render.words import many
from fleet.schema.model import Fleet
from fleet.store.database import DatabaseStore
from fleet.store.places import Places, find_places


def run(args: argparse.Namespace, console: Console) -> int:
    """Do to the fleet's state what the action says."""
    config = load_config(args, console)
    fleet = config.fleet
    places = find_places(fleet, args.file)
    store = DatabaseStore(places.store, fleet.fleet)
    match args.action:
        case "init":
            code = _init(fleet, store, args, console)
        case "show":
            code = _show(store, places, args, console)
        case "export":
            code = export_state(fleet, store, places, args.out, console)
        case "import":
            code = import_state(fleet, store, places, args.source, console)
        case "orphans":
            code = orphans(config, args, console)
        case "rebuild":
            code = rebuild(config, args, store, console)
        case "forget-machine":
            code = forget(config, args, console)
        case _:
            code = unlock(fleet, store, places, args.holder, console)
    return code


def _init(fleet: Fleet, store: DatabaseStore, args: argparse.Namespace, console: Console) -> int:
    made = store.init()
    console.out(f"store {store.place} {'created' if made else 'exists already, nothing to do'}")
    if args.forget_stack:
        _forget(store, wire(fleet, args.file).engine_of, args.forget_stack)
        console.out(
            f"stack {args.forget_stack} forgotten; machines it had stay until someone removes them"
        )
    return 0


def _forget(store: DatabaseStore, engine_of: Callable[[str], Engine], name: str) -> None:
    """Give up a stack that is lost; one that still answers is refused."""
    records = {record.name: record for record in store.stacks()}
    if name not in records:
        known = ", ".join(records) or "none"
        raise FleetError(f"the store knows no stack {name}; it knows: {known}")
    known_as = records[name]
    ref = StackRef(
        project=known_as.project, name=name, provider=known_as.provider, pool=known_as.pool
    )
    try:
        stack = engine_of(ref.provider).read(ref)
    except FleetError:
        stack = None  # whoever could have read it is gone, so it is lost
    if isinstance(stack, Stack) and stack.ids:
        held, them = many(len(stack.ids), "machine"), "it" if len(stack.ids) == 1 else "them"
        raise PlanRefused(
            f"refused: stack {name} is not lost, it holds {held}; to be rid of {them} remove the "
            "pool from fleet.yaml or give it `mode: drain`, then `fleet apply`"
        )
    store.forget_stack(name)


def _show(store: DatabaseStore, places: Places, args: argparse.Namespace, console: Console) -> int:
    stacks = [record.model_dump() for record in store.stacks()]
    runs = store.last_runs(5)
    holder = store.lock_holder()
    if args.json:
        shown = {
            "store": store.place,
            "backend": places.backend,
            "lock": holder,
            "stacks": stacks,
            "runs": [run_to_value(run) for run in runs],
        }
        console.out(json.dumps(shown, indent=2, sort_keys=True))
        return 0
    lines = [f"store    {store.place}", f"backend  {places.backend}"]
    lines.append(f"lock     {f'{holder[0]} since {holder[1]}' if holder else 'free'}")
    lines += [f"stack    {s['name']} ({s['engine']}, serial {s['serial']})" for s in stacks]
    lines = [*map(clean, lines)]
    latest = runs[:1]
    lines += [run_to_text(run, running=bool(holder) and run in latest) for run in runs]
    console.out("\n".join(lines))
    return 0
