"""This module shows what one witness alone knows, and makes lost state anew from marks.

Secrets in the file are as encrypted as they were. Nothing that is there is written over; a
carrying that was cut short is finished by the same command, since what is the same is fine.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError

from fleet.apply.config import Config, load_config
from fleet.apply.decide import look, plan_for
from fleet.apply.journal import journalled
from fleet.apply.observe import Sources, base_ref, stack_ref
from fleet.apply.rebuild import (
    Orphan,
    Rebuild,
    carry_out,
    charged_anew,
    find_orphans,
    find_rebuild,
    forget_lost,
)
from fleet.apply.shared import apply_shared_stacks
from fleet.apply.timer import SystemClock
from fleet.apply.wire import lock_owner, wire
from fleet.cli.arguments import Parser, add_json, add_verb
from fleet.cli.machine import forget
from fleet.engines.embedded import Records, StackRows
from fleet.engines.projects import load_project, stacks_folder
from fleet.engines.pulumi_automation import project_name
from fleet.engines.pulumi_backends import Objects, open_objects, place_of
from fleet.engines.pulumi_state import Lock, drop_locks, find_checkpoint, find_locks, stack_key
from fleet.errors import (
    FileUnreadable,
    FleetError,
    Locked,
    PlanRefused,
    StoreFailed,
    StoreMissing,
    WrongUsage,
)
from fleet.model.facts import Stack, World
from fleet.model.outcome import Outcome, StackOutcome
from fleet.model.saved_plan import LIMIT_BYTES
from fleet.model.values import Moment, Value
from fleet.ports import Console, Engine, StackRecord, StackRef
from fleet.report.outcome import run_to_text, run_to_value
from fleet.report.terminal import clean
from fleet.report.words import many
from fleet.schema.model import Fleet, Pool
from fleet.state.dump import Cell, complete, find_mistake
from fleet.state.files import LocalFiles, replace_file
from fleet.state.places import Places, find_places, sqlite_url
from fleet.state.store import DatabaseStore


def arguments(parser: Parser) -> None:
    """Declare what `fleet state` takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, help_text in (
        ("init", "create the store (once per fleet)"),
        ("show", "show where store and stacks are and what they hold"),
        ("orphans", "list machines without a stack entry, and stack entries without a machine"),
        ("rebuild", "rebuild lost state from the labels of machines; deletes nothing"),
        ("export", "write the store and the stacks to a file"),
        ("import", "import such a file into the state that fleet.yaml names"),
        ("forget-machine", "remove a machine from its stack (same as `fleet machine forget`)"),
        ("unlock", "remove the locks of dead runs, of the fleet and of its stacks"),
    ):
        action = add_verb(actions, name, help_text)
        if name in ("show", "orphans", "rebuild"):
            add_json(action)
        if name == "rebuild":
            action.add_argument(
                "--apply", action="store_true", help="apply the changes (default: only show them)"
            )
        if name == "forget-machine":
            action.add_argument(
                "machine", metavar="NAME", help="its name, as plan and status show it"
            )
        if name == "export":
            action.add_argument("--out", metavar="FILE", required=True, help="the file to write")
        if name == "import":
            action.add_argument("source", metavar="FILE", help="the file to read")
        if name == "unlock":
            action.add_argument(
                "--holder",
                metavar="WHO",
                help="also remove the locks of this holder, which you know to be dead",
            )
        if name == "init":
            action.add_argument(
                "--forget-stack", metavar="STACK", help="forget a stack whose state is lost"
            )


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
        world, troubles = apply_shared_stacks(fleet, world, edges, console.note)
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


_META = ".pulumi/meta.yaml"
_LAYOUT = b"version: 1\n"
"""Without it the CLI takes stacks that it finds for those of an old layout."""

Name = tuple[str, str]
"""A stack: the name that Pulumi knows its project by, and its own."""


def stacks_of(fleet: Fleet, records: Iterable[StackRecord]) -> tuple[Name, ...]:
    """Return every stack that a fleet may have: remembered ones, each pool's, each provider's."""
    known = {(record.project, record.name) for record in records}
    for name, pool in fleet.pools.items():
        if isinstance(pool, Pool):
            ref = stack_ref(fleet, name, pool.provider)
            known.add((ref.project, ref.name))
    bases = (base_ref(fleet, name) for name in fleet.providers)
    known |= {(ref.project, ref.name) for ref in bases}
    return tuple(
        (project_name(load_project(project)), name)
        for project, name in sorted(known)
        if (stacks_folder() / project).is_dir()
    )


class Stacks:
    """The stacks where one fleet.yaml keeps them."""

    def __init__(self, places: Places) -> None:
        self.place = place_of(places.backend)
        self.settings_folder = places.folder / "pulumi" / "work"
        self._records = Records(places.embedded)
        self._backend = places.backend

    @cached_property
    def _objects(self) -> Objects:
        objects = open_objects(self._backend)
        if objects is None:
            raise StoreFailed(
                f"{self.place} is reached by the Pulumi CLI only; carry its stacks with `pulumi "
                "stack export` and `pulumi stack import`"
            )
        return objects

    def locks(self, project: str, name: str) -> tuple[Lock, ...]:
        """Return who holds a stack of the real engine."""
        return find_locks(self._objects, project, name)

    def embedded(self, stacks: Iterable[Name]) -> dict[str, StackRows]:
        """Return what the embedded engine recorded of these stacks, of those that it has."""
        found = {name: self._records.read(name) for _, name in stacks}
        return {name: rows for name, rows in found.items() if rows is not None}

    def checkpoints(self, stacks: Iterable[Name]) -> dict[str, dict[str, Any]]:
        """Return the real engine's checkpoints by key, unpacked, of those that it has."""
        return self.read(stack_key(project, name) for project, name in stacks)

    def read(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the checkpoints behind these keys, where there are any."""
        found = {key: find_checkpoint(self._objects, key) for key in keys}
        return {key: checkpoint for key, checkpoint in found.items() if checkpoint is not None}

    def settings(self, stacks: Iterable[Name]) -> dict[str, str]:
        """Return the settings of these stacks, by path: with what their secrets are salted."""
        return self.read_settings(f"{project}/Pulumi.{name}.yaml" for project, name in stacks)

    def read_settings(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the settings in these files, where there are any."""
        found = {}
        for path in paths:
            try:
                found[path] = (self.settings_folder / path).read_text(encoding="utf-8")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreFailed(f"{path}: {error.strerror}") from error
        return found

    def write(
        self,
        embedded: Mapping[str, StackRows],
        checkpoints: Mapping[str, dict[str, Any]],
        settings: Mapping[str, str],
    ) -> None:
        """Write what is not there yet."""
        if checkpoints and self._objects.read(_META) is None:
            self._objects.create(_META, _LAYOUT)
        for key, checkpoint in checkpoints.items():
            if find_checkpoint(self._objects, key) is None:
                self._objects.create(key, json.dumps(checkpoint, indent=4).encode())
        for path, text in settings.items():
            file = self.settings_folder / path
            try:
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(file, text.encode(), mode=0o600)
            except OSError as error:
                raise StoreFailed(f"{file}: {error.strerror}") from error
        self._records.fill(embedded)


class Held(NamedTuple):
    """A lock, who holds it, and how it is taken away."""

    what: str
    owner: str
    since: str
    alive: bool | None
    release: Callable[[], None]


def unlock(
    fleet: Fleet, store: DatabaseStore, places: Places, dead: str | None, console: Console
) -> int:
    """Take away what the dead hold; `dead` is a holder of whom a person knows that it is."""
    names = stacks_of(fleet, store.stacks())
    locks = (*_of_the_fleet(fleet.fleet, store), *_of_stacks(names, places))
    kept = []
    for held in locks:
        if held.alive is False or (held.alive is None and held.owner == dead):
            held.release()
            console.out(f"took {held.what} away from {held.owner}, who held it since {held.since}")
        else:
            kept.append(_why_kept(held))
    if kept:
        raise PlanRefused("; ".join(kept))
    if not locks:
        console.out("nobody holds the lock")
    return 0


def _of_the_fleet(fleet: str, store: DatabaseStore) -> Iterator[Held]:
    holder = store.lock_holder()
    if holder:
        owner, since = holder
        yield Held(
            f"the lock of fleet {fleet}",
            owner,
            since,
            store.is_held(),
            partial(store.unlock, owner),
        )


def _of_stacks(names: Iterable[Name], places: Places) -> Iterator[Held]:
    """Yield the locks that the real engine left; of the embedded one the kernel keeps none."""
    objects = open_objects(places.backend)
    if objects is None:
        return
    for project, name in names:
        for lock in find_locks(objects, project, name):
            yield Held(
                f"the lock of stack {name}",
                lock.owner,
                lock.since,
                lock.alive,
                partial(drop_locks, objects, [lock]),
            )


def _why_kept(held: Held) -> str:
    whose = f"{held.what} is held by {held.owner} since {held.since}"
    if held.alive:
        return f"{whose}, and that process lives: wait for it to end"
    return (
        f"{whose}, and whether that process lives cannot be told from here: look where it ran, "
        f"and when it is dead: fleet state unlock --holder '{held.owner}'"
    )


_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_Key = Annotated[str, StringConstraints(pattern=rf"^\.pulumi/stacks/{_NAME}/{_NAME}\.json$")]
_Path = Annotated[str, StringConstraints(pattern=rf"^{_NAME}/Pulumi\.{_NAME}\.yaml$")]


class StateFile(Value):
    """Everything that outlives a run."""

    format: Literal["fleet-state-1"] = "fleet-state-1"
    fleet: str
    exported: Moment
    store: dict[str, list[dict[str, Cell]]] = Field(description="Rows by table.")
    embedded: dict[str, StackRows] = Field(description="The embedded engine's stacks by name.")
    pulumi: dict[_Key, dict[str, Any]] = Field(description="The real engine's checkpoints by key.")
    settings: dict[_Path, str] = Field(description="Their settings, by path in its work folder.")


def export_state(
    fleet: Fleet, store: DatabaseStore, places: Places, out: str, console: Console
) -> int:
    """Write all that the fleet remembers to a file, while nobody changes it."""
    clock = SystemClock()
    stacks = Stacks(places)
    with store.lock(lock_owner(), clock.now()) as died:
        if died:
            console.note(f"took over the lock of {died}, which died")
        names = stacks_of(fleet, store.stacks())
        _refuse_locked(stacks, names)
        file = StateFile(
            fleet=fleet.fleet,
            exported=clock.now(),
            store={table: [dict(row) for row in rows] for table, rows in store.dump().items()},
            embedded=stacks.embedded(names),
            pulumi=stacks.checkpoints(names),
            settings=stacks.settings(names),
        )
    _write(Path(out), json.dumps(file.model_dump(mode="json"), indent=1, sort_keys=True) + "\n")
    console.out(f"{out} holds {_said(file)}; secrets in it are as encrypted as they were")
    return 0


def import_state(
    fleet: Fleet, store: DatabaseStore, places: Places, source: str, console: Console
) -> int:
    """Put what a file holds where fleet.yaml keeps state, all of it or nothing."""
    file = _read(Path(source))
    if file.fleet != fleet.fleet:
        raise WrongUsage(f"{source} is of fleet {file.fleet}, and fleet.yaml is {fleet.fleet}'s")
    stacks = Stacks(places)
    present = {*_stacks_there(stacks, file), *_store_there(store, file)}
    if present:
        raise PlanRefused(
            f"refused, nothing was written: there is something else already: "
            f"{', '.join(sorted(present))}; it is not written over, so move it away first, or "
            "name another place in fleet.yaml"
        )
    stacks.write(file.embedded, file.pulumi, file.settings)
    # Last: without a store nothing is applied, so that nobody goes on with half of it.
    store.fill(file.store)
    console.out(f"{_said(file)} of {source} are now in {store.place} and {stacks.place}")
    return 0


def _said(file: StateFile) -> str:
    stacks = many(len(file.embedded) + len(file.pulumi), "stack")
    return f"the store ({many(len(file.store.get('runs', [])), 'run')}) and {stacks}"


def _refuse_locked(stacks: Stacks, names: Sequence[tuple[str, str]]) -> None:
    for project, name in names:
        for lock in stacks.locks(project, name):
            if lock.alive is not False:
                raise Locked(
                    f"stack {name} is being changed by {lock.owner} since {lock.since}; wait, or "
                    "if that run is dead: `fleet state unlock`"
                )


def _stacks_there(stacks: Stacks, file: StateFile) -> Iterator[str]:
    """Yield what stands where the file's stacks should go and is not the same."""
    for name, rows in stacks.embedded([("", name) for name in file.embedded]).items():
        if rows != file.embedded[name]:
            yield f"stack {name} of the embedded engine"
    for key, checkpoint in stacks.read(file.pulumi).items():
        if checkpoint != file.pulumi[key]:
            yield f"{stacks.place}/{key}"
    for path, text in stacks.read_settings(file.settings).items():
        if text != file.settings[path]:
            yield str(stacks.settings_folder / path)


def _store_there(store: DatabaseStore, file: StateFile) -> Iterator[str]:
    try:
        rows = store.dump()
    except StoreMissing:
        return
    if any(rows.values()) and _plain(rows) != _plain(file.store):
        yield f"the store {store.place}"


def _plain(rows: Mapping[str, Sequence[Mapping[str, Cell]]]) -> dict[str, list[dict[str, Cell]]]:
    return {table: [dict(row) for row in found] for table, found in rows.items() if found}


def _read(path: Path) -> StateFile:
    try:
        value = json.loads(LocalFiles().read(str(path), LIMIT_BYTES))
        file = StateFile.model_validate(value)
    except json.JSONDecodeError as error:
        raise FileUnreadable(
            f"{path}:{error.lineno}:{error.colno}: not JSON: {error.msg}"
        ) from None
    except UnicodeDecodeError:
        raise FileUnreadable(f"{path}: not UTF-8 text") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise FileUnreadable(
            f"{path}: not what `fleet state export` writes: {place}: {first['msg']}"
        ) from None
    store = complete(file.store)
    mistake = find_mistake(store)
    if mistake:
        raise FileUnreadable(f"{path}: not what `fleet state export` writes: {mistake}")
    return file.model_copy(update={"store": store})


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all, for its owner's eyes only."""
    try:
        replace_file(path, text.encode(), mode=0o600)
    except OSError as error:
        raise FileUnreadable(f"{path}: cannot be written: {error.strerror}") from error


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
