"""This module looks after what must outlive a run."""

import argparse
import json

from fleet.commands.wiring import load_config
from fleet.errors import FleetError
from fleet.ports import Console
from fleet.store.database import DatabaseStore
from fleet.store.places import Places, find_places


def run(args: argparse.Namespace, console: Console) -> int:
    """Create the store, show it, or take away a dead run's lock."""
    fleet = load_config(args, console).fleet
    places = find_places(fleet, args.file)
    store = DatabaseStore(places.store, fleet.fleet)
    match args.action:
        case "init":
            return _init(store, args.forget_stack, console)
        case "show":
            return _show(store, places, args, console)
        case _:
            return _unlock(store, console)


def _init(store: DatabaseStore, forget: str | None, console: Console) -> int:
    made = store.init()
    console.out(f"store {store.place} {'created' if made else 'exists already, nothing to do'}")
    if forget:
        if forget not in {record.name for record in store.stacks()}:
            raise FleetError(f"the store knows no stack {forget}")
        store.forget_stack(forget)
        console.out(f"stack {forget} forgotten; machines it had stay until someone removes them")
    return 0


def _show(store: DatabaseStore, places: Places, args: argparse.Namespace, console: Console) -> int:
    stacks = [record.model_dump() for record in store.stacks()]
    runs = [dict(run) for run in store.last_runs(5)]
    holder = store.lock_holder()
    if args.json:
        shown = {
            "store": store.place,
            "backend": places.backend,
            "lock": holder,
            "stacks": stacks,
            "runs": runs,
        }
        console.out(json.dumps(shown, indent=2, sort_keys=True))
        return 0
    lines = [f"store    {store.place}", f"backend  {places.backend}"]
    lines.append(f"lock     {f'{holder[0]} since {holder[1]}' if holder else 'free'}")
    lines += [f"stack    {s['name']} ({s['engine']}, serial {s['serial']})" for s in stacks]
    lines += [f"run      {r['started']} to {r['ended']}, plan {r['plan'][:12]}" for r in runs]
    console.out("\n".join(lines))
    return 0


def _unlock(store: DatabaseStore, console: Console) -> int:
    holder = store.unlock()
    if holder is None:
        console.out("nobody holds the lock")
        return 0
    console.out(f"took the lock away from {holder[0]}, who held it since {holder[1]}")
    return 0
