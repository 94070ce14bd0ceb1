"""`fleet state`: create, show, repair and move the stored state."""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fleet.apply.config import Config, load_config
from fleet.apply.observe import Sources
from fleet.apply.plan import observe_with_progress, plan_for
from fleet.apply.rebuild import (
    Orphan,
    StateRebuild,
    carry_out,
    charged_anew,
    find_orphans,
    find_predecessor,
    find_rebuild,
    forget_lost,
    forget_stack,
)
from fleet.apply.record import RunLog, journalled
from fleet.apply.run import apply_shared_stacks
from fleet.apply.state_file import export_state, import_state, unlock
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import JSON, Run, action, actions, argument, flag, option
from fleet.cli.machine import MACHINE, forget
from fleet.cli.output import show_text
from fleet.clock import utc_now
from fleet.errors import StoreMissing
from fleet.model.facts import World
from fleet.model.history import Outcome, StackOutcome
from fleet.model.tickets import highest_id_of_lost
from fleet.planner.inventory import desks_of
from fleet.ports import Console
from fleet.report.outcome import run_to_text, run_to_value
from fleet.report.terminal import clean
from fleet.schema.model import Fleet
from fleet.state.storage import Storage, find_storage, sqlite_url
from fleet.state.store import Store
from fleet.words.figures import many
from fleet.words.runs import LOST_WITH_STORE, describe_killed, describe_left, explain_lost_store


class _Stored(NamedTuple):
    """The context of an action: the configuration, and the store that the configuration names."""

    args: argparse.Namespace
    console: Console
    config: Config
    storage: Storage
    store: Store

    @property
    def fleet(self) -> Fleet:
        """Return the fleet of the configuration."""
        return self.config.fleet

    @property
    def place(self) -> tuple[Fleet, Store, Storage]:
        """Return the fleet, its store, and the location of its stacks."""
        return self.fleet, self.store, self.storage


def _run_on_store(act: Callable[[_Stored], int]) -> Run:
    """Return a command that loads the configuration, and then acts on the fleet's state."""

    def run(args: argparse.Namespace, console: Console) -> int:
        config = load_config(args, console)
        storage = find_storage(config.fleet, args.file)
        return act(
            _Stored(args, console, config, storage, Store(storage.store, config.fleet.fleet))
        )

    return run


def _init(stored: _Stored) -> int:
    args, console, store, fleet = stored.args, stored.console, stored.store, stored.fleet
    try:
        with store.begin():
            lost, is_listed = "", False
    except StoreMissing:
        lost, is_listed = find_predecessor(fleet, args.file, stored.storage)
    now = utc_now()
    made = store.init(now)
    console.out(f"store {store.address} {'created' if made else 'already exists'}")
    if made and is_listed:
        console.note(f"fleet: warning: {explain_lost_store(lost)}")
    if made and lost:
        store.number_tickets_after(highest_id_of_lost(now))
        if desks_of(fleet, fleet.queues):
            console.out(f"ticket ids start after {highest_id_of_lost(now)}: {lost}")
    if args.forget_stack:
        forget_stack(store, wire(fleet, args.file).engine_of, args.forget_stack)
        console.out(
            f"stack {args.forget_stack} forgotten; its machines still exist, delete them by hand"
        )
    return 0


def _show(stored: _Stored) -> int:
    store, backend = stored.store, stored.storage.backend
    stacks = [record.model_dump() for record in store.stacks()]
    runs = store.last_runs(5)
    holder, killed = store.lock_holder(), store.killed_holder()
    shown = {
        "store": store.address,
        "backend": backend,
        "lock": holder,
        "stacks": stacks,
        "runs": [run_to_value(run) for run in runs],
    }
    lines = [f"store    {store.address}", f"backend  {backend}"]
    holding = f"{holder[0]} since {holder[1]}" if holder else "free"
    lines.append(f"lock     {describe_killed(*killed) if killed else holding}")
    lines += [f"stack    {s['name']} ({s['engine']}, serial {s['serial']})" for s in stacks]
    lines = [*map(clean, lines)]
    latest = runs[:1]
    lines += [run_to_text(run, running=holder != killed and run in latest) for run in runs]
    show_text(stored.args, stored.console, shown, "\n".join(lines), sort_keys=True)
    return 0


def _migrate(stored: _Stored) -> int:
    """Print the pending change of the store's schema; with --apply, execute it under the lock."""
    store, applies = stored.store, stored.args.apply
    change = store.migration()
    if change and applies:
        with store.lock(lock_owner(), utc_now()):
            store.migrate()
    done = "done" if applies else "nothing was changed; to apply: fleet state migrate --apply"
    stored.console.out(f"{change}\n{done}" if change else "the store is of this version")
    return 0


_SAID = {
    "unrecorded": "its provider lists it, no stack holds it: it costs money",
    "missing": "its stack holds it, its provider does not list it: it keeps a slot",
}


def _orphans(stored: _Stored) -> int:
    """List machines known to only a stack or only a provider; return 1 if any, or if unknown."""
    config, console = stored.config, stored.console
    world = observe_with_progress(config, wire(config.fleet, stored.args.file), console)
    found = find_orphans(config.fleet, world, plan_for(config, world))
    lines = [_orphan_to_text(orphan) for orphan in found.orphans]
    lines += [f"? {reason}" for reason in found.unknown]
    text = "\n".join(lines or ["no orphans: machines and stacks agree"])
    show_text(stored.args, console, found.model_dump(mode="json"), text, sort_keys=True)
    return 1 if found.orphans or found.unknown else 0


def _orphan_to_text(orphan: Orphan) -> str:
    where = f"pool {orphan.pool}, provider {orphan.provider}, id {orphan.id or 'unknown'}"
    kept = f"; kept until ticket {orphan.ticket} ends" if orphan.ticket else ""
    becomes = kept or ("; `fleet apply` deletes it" if orphan.goes else "")
    more = f"{becomes}: fleet explain worker {orphan.name}" if becomes else ""
    return f"{orphan.name} ({where}): {_SAID[orphan.kind]}{more}"


def _rebuild(stored: _Stored) -> int:
    """Rebuild lost parts of the store and stacks from machine labels, or show the steps."""
    args, console, store, fleet = stored.args, stored.console, stored.store, stored.fleet
    sources = wire(fleet, args.file)
    if not args.apply:
        with _copy_store(store, fleet) as copy:
            lost, world = _look(stored.config, replace(sources, store=copy), console)
        found = find_rebuild(fleet, world)
        console.out(_render_rebuild(fleet, world, found, lost, as_json=args.json))
        if not args.json:
            console.out("nothing was changed; to apply: fleet state rebuild --apply")
        return _code(found, ())
    started = utc_now()
    if store.init(started):
        console.note(f"store {store.address} created; {LOST_WITH_STORE}")
    with store.lock(lock_owner(), started):
        store.number_tickets_after(highest_id_of_lost(started))
        store.begin_run(started=started)
        edges = journalled(sources, lambda step: store.record_step(started=started, step=step))
        lost, world = _look(stored.config, sources, console)
        # Find shared resources by their labels, too; their stack must exist first.
        world, troubles = apply_shared_stacks(fleet, world, edges, console.note)
        found = find_rebuild(fleet, world)
        done = carry_out(fleet, world, found, edges)
        log = RunLog(store, started, "state rebuild")
        log.record(Outcome(plan="", stacks=(*troubles, *done)))
    console.out(_render_rebuild(fleet, world, found, lost, as_json=args.json))
    failed = tuple(each for each in done if each.result == "failed")
    for each in troubles:
        console.note(f"not rebuilt: {each.pool}: {each.error}")
    for each in failed:
        console.note(f"not rebuilt: pool {each.pool}: {each.error}")
    return _code(found, failed)


def _look(config: Config, sources: Sources, console: Console) -> tuple[tuple[str, ...], World]:
    return forget_lost(sources), observe_with_progress(config, sources, console)


@contextmanager
def _copy_store(store: Store, fleet: Fleet) -> Iterator[Store]:
    """Yield a temporary copy of the store; the copy is empty if the store is missing."""
    try:
        rows = store.dump()
    except StoreMissing:
        rows = {}
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        copy = Store(sqlite_url(Path(folder) / "store.db"), fleet.fleet)
        copy.fill(rows)
        yield copy


def _code(found: StateRebuild, failed: tuple[StackOutcome, ...]) -> int:
    if failed:
        return 5 if len(failed) < len(found.pools) else 1
    return 1 if found.left or found.unknown else 0


def _render_rebuild(
    fleet: Fleet, world: World, found: StateRebuild, lost: tuple[str, ...], *, as_json: bool
) -> str:
    money = sum(entry.money for entry in charged_anew(fleet, world, found))
    if as_json:
        value = found.model_dump(mode="json") | {"charged": str(money), "forgotten": list(lost)}
        return json.dumps(value, indent=2, sort_keys=True)
    lines = [f"stack {name} is gone: forgotten" for name in lost]
    for pool, workers in found.pools.items():
        names = ", ".join(worker.name for worker in workers)
        lines.append(f"pool {pool}: {many(len(workers), 'machine')} into its stack: {names}")
    lines += [describe_left(left.name, left.pool, left.because) for left in found.left]
    lines += [f"? {reason}" for reason in found.unknown]
    if money:
        lines.append(
            f"charged to this month: {money:.2f} {fleet.money.currency}, each machine from its "
            "creation"
        )
    return "\n".join(lines or ["nothing to rebuild: every machine is in its stack"])


_APPLY = flag("--apply", "apply the changes (default: only show them)")
ARGUMENTS = (
    actions(
        action(
            "init",
            "create the store (once per fleet)",
            _run_on_store(_init),
            option("--forget-stack", "STACK", "forget a stack that lost its state"),
        ),
        action(
            "show", "show location and contents of store and stacks", _run_on_store(_show), JSON
        ),
        action(
            "orphans",
            "list machines without a stack entry, and stack entries without a machine",
            _run_on_store(_orphans),
            JSON,
        ),
        action(
            "rebuild",
            "rebuild lost state from the labels of machines",
            _run_on_store(_rebuild),
            JSON,
            _APPLY,
        ),
        action(
            "export",
            "write the store and the stacks to a file",
            _run_on_store(lambda s: export_state(*s.place, s.args.out, s.console)),
            argument("--out", metavar="FILE", required=True, help="file to write"),
        ),
        action(
            "import",
            "import a file of `fleet state export`",
            _run_on_store(lambda s: import_state(*s.place, s.args.source, s.console)),
            argument("source", metavar="FILE", help="file to read"),
        ),
        action(
            "forget-machine",
            "remove a machine from its stack (same as `fleet machine forget`)",
            forget,
            MACHINE,
        ),
        action(
            "migrate",
            "upgrade a store from an older version of fleet",
            _run_on_store(_migrate),
            _APPLY,
        ),
        action(
            "unlock",
            "remove the locks that dead runs left",
            _run_on_store(lambda s: unlock(*s.place, s.args.holder, s.console)),
            option(
                "--holder",
                "WHO",
                "also remove the locks of this holder; check first that it is dead",
            ),
        ),
    ),
)
