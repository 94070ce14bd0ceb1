"""This module shows what one witness alone knows, and makes lost state anew from marks."""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from fleet.commands.clock import SystemClock
from fleet.commands.config import Config
from fleet.commands.wiring import lock_owner, look, plan_for, wire
from fleet.errors import StoreMissing
from fleet.facts import World
from fleet.operate.base import lay_bases
from fleet.operate.journal import journalled
from fleet.operate.observe import Sources
from fleet.operate.orphans import Orphan, find_orphans
from fleet.operate.rebuild import (
    Rebuild,
    carry_out,
    charged_anew,
    find_rebuild,
    forget_lost,
)
from fleet.plan.outcome import Outcome, StackOutcome
from fleet.ports import Console
from fleet.render.words import many
from fleet.schema.model import Fleet
from fleet.store.database import DatabaseStore
from fleet.store.places import sqlite_url

_SAID = {
    "unrecorded": "its provider lists it, no stack knows it: it costs money",
    "missing": "its stack knows it, its provider does not list it: it keeps a slot",
}


def orphans(config: Config, args: argparse.Namespace, console: Console) -> int:
    """List what one witness of a machine knows and the other does not."""
    world = look(config, wire(config.fleet, args.file), console)
    found = find_orphans(config.fleet, world, plan_for(config, world))
    if args.json:
        console.out(json.dumps(found.model_dump(mode="json"), indent=2, sort_keys=True))
    else:
        lines = [_orphan_to_text(orphan) for orphan in found.orphans]
        lines += [f"? {reason}" for reason in found.unknown]
        console.out("\n".join(lines or ["no orphans: machines and stacks agree"]))
    return 1 if found.orphans or found.unknown else 0


def _orphan_to_text(orphan: Orphan) -> str:
    where = f"pool {orphan.pool}, provider {orphan.provider}, id {orphan.id or 'unknown'}"
    goes = f" until it goes by itself: fleet explain worker {orphan.name}" if orphan.goes else ""
    return f"{orphan.name} ({where}): {_SAID[orphan.kind]}{goes}"


def rebuild(
    config: Config, args: argparse.Namespace, store: DatabaseStore, console: Console
) -> int:
    """Make what is lost of store and stacks anew, or show what that would do."""
    fleet = config.fleet
    sources = wire(fleet, args.file)
    if not args.apply:
        with _copied(store, fleet) as copy:
            lost, world = _look(config, replace(sources, store=copy), console)
        found = find_rebuild(fleet, world)
        console.out(_shown(fleet, world, found, lost, as_json=args.json))
        if not args.json:
            console.out("nothing was changed; to do it: fleet state rebuild --apply")
        return _code(found, ())
    store.init()
    started = SystemClock().now()
    with store.lock(lock_owner(), started):
        store.begin_run(started=started)
        edges = journalled(sources, lambda step: store.record_step(started=started, step=step))
        lost, world = _look(config, sources, console)
        # What machines share is known by its mark too: its stack comes first.
        world, troubles = lay_bases(fleet, world, edges, console.note)
        found = find_rebuild(fleet, world)
        done = carry_out(fleet, world, found, edges)
        store.record_run(
            started=started,
            ended=SystemClock().now(),
            plan="",
            outcome=Outcome(plan="", stacks=(*troubles, *done)).model_dump_json(),
        )
    console.out(_shown(fleet, world, found, lost, as_json=args.json))
    failed = tuple(each for each in done if each.result == "failed")
    for each in troubles:
        console.note(f"not rebuilt: {each.pool}: {each.error}")
    for each in failed:
        console.note(f"not rebuilt: pool {each.pool}: {each.error}")
    return _code(found, failed)


def _look(config: Config, sources: Sources, console: Console) -> tuple[tuple[str, ...], World]:
    return forget_lost(sources), look(config, sources, console)


@contextmanager
def _copied(store: DatabaseStore, fleet: Fleet) -> Iterator[DatabaseStore]:
    """Yield a store to try things with: what is in the real one, if there is any."""
    try:
        rows = store.dump()
    except StoreMissing:
        rows = {}
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        copy = DatabaseStore(sqlite_url(Path(folder) / "store.db"), fleet.fleet)
        copy.fill(rows)
        yield copy


def _code(found: Rebuild, failed: tuple[StackOutcome, ...]) -> int:
    if failed:
        return 5 if len(failed) < len(found.pools) else 1
    return 1 if found.left or found.unknown else 0


def _shown(
    fleet: Fleet, world: World, found: Rebuild, lost: tuple[str, ...], *, as_json: bool
) -> str:
    money = sum(entry.money for entry in charged_anew(fleet, world))
    if as_json:
        value = found.model_dump(mode="json") | {"charged": str(money), "forgotten": list(lost)}
        return json.dumps(value, indent=2, sort_keys=True)
    lines = [f"stack {name} is gone: forgotten" for name in lost]
    for pool, workers in found.pools.items():
        names = ", ".join(worker.name for worker in workers)
        lines.append(f"pool {pool}: {many(len(workers), 'machine')} into its stack: {names}")
    lines += [f"{left.name} (pool {left.pool}) stays: {left.because}" for left in found.left]
    lines += [f"? {reason}" for reason in found.unknown]
    if money:
        lines.append(
            f"charged to this month: {money:.2f} {fleet.money.currency}, as if each machine had "
            "run since it began"
        )
    return "\n".join(lines or ["nothing to rebuild: every machine is in its stack"])
