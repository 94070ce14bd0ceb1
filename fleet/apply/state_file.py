"""Export a fleet's store and stacks to one file, import such a file, and remove dead locks.

Existing content is never overwritten. Since equal content is accepted, the same command completes
an interrupted import.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from fleet.apply.observe import base_ref, stack_ref
from fleet.apply.saved_plan import LIMIT_BYTES
from fleet.apply.wire import lock_owner
from fleet.clock import utc_now
from fleet.engines.embedded import Records, StackRows
from fleet.engines.projects import project_name
from fleet.engines.pulumi_state import (
    Lock,
    Objects,
    drop_locks,
    find_checkpoint,
    find_locks,
    open_objects,
    shown_address,
    stack_key,
)
from fleet.errors import (
    FileUnreadable,
    Locked,
    PlanRefused,
    StoreFailed,
    StoreMissing,
    WrongUsage,
    touching,
)
from fleet.model.tickets import highest_id_of_lost
from fleet.model.values import Moment, Value, first_mistake
from fleet.ports import Console, StackRecord
from fleet.schema.model import Fleet
from fleet.state.database import Cell, complete, find_invalid_row
from fleet.state.files import LocalFiles, replace_file
from fleet.state.storage import Storage, shipped_folder
from fleet.state.store import Store
from fleet.words.figures import many

_NO_EXPORT = "not a file of `fleet state export`"
_NAME = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"
_Key = Annotated[str, StringConstraints(pattern=rf"^\.pulumi/stacks/{_NAME}/{_NAME}\.json$")]
_Path = Annotated[str, StringConstraints(pattern=rf"^{_NAME}/Pulumi\.{_NAME}\.yaml$")]


class StateFile(Value):
    """The content of an exported file: all state of a fleet that outlives a run."""

    format: Literal["fleet-state-1"] = "fleet-state-1"
    fleet: str
    exported: Moment
    store: dict[str, list[dict[str, Cell]]] = Field(description="Rows by table.")
    embedded: dict[str, StackRows] = Field(description="The embedded engine's stacks by name.")
    pulumi: dict[_Key, dict[str, Any]] = Field(description="The real engine's checkpoints by key.")
    settings: dict[_Path, str] = Field(description="Their settings, by path in its work folder.")


def export_state(fleet: Fleet, store: Store, storage: Storage, out: str, console: Console) -> int:
    """Write the store and the stacks to a file under the lock; return the exit code."""
    stacks = Stacks(storage)
    with store.lock(lock_owner(), utc_now()) as died:
        if died:
            console.note(f"took over the lock of {died}, which died")
        names = stacks_of(fleet, store.stacks())
        for project, name in names:
            for lock in find_locks(stacks.objects, project, name):
                if lock.alive is not False:
                    raise Locked(
                        f"stack {name} is locked by {lock.owner} since {lock.since}; wait, or if "
                        "that run is dead: `fleet state unlock`"
                    )
        rows = {table: [dict(row) for row in rows] for table, rows in store.dump().items()}
        try:
            file = StateFile(
                fleet=fleet.fleet,
                exported=utc_now(),
                store=rows,
                embedded=stacks.embedded(names),
                pulumi=stacks.read(stack_key(*name) for name in names),
                settings=stacks.read_settings(
                    f"{project}/Pulumi.{name}.yaml" for project, name in names
                ),
            )
        except ValidationError as error:
            raise StoreFailed(f"{out} is not written: {first_mistake(error)}") from error
    text = json.dumps(file.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"
    with touching(f"{out}: cannot be written", FileUnreadable):
        # Atomically, and readable only by the owner of the file.
        replace_file(Path(out), text.encode(), mode=0o600)
    console.out(f"wrote {_contents(file)} to {out}; secrets stay encrypted as they were")
    return 0


def import_state(
    fleet: Fleet, store: Store, storage: Storage, source: str, console: Console
) -> int:
    """Import a whole file into the state of fleet.yaml, or refuse it. Return the exit code."""
    file = _read(Path(source))
    if file.fleet != fleet.fleet:
        raise WrongUsage(f"{source} is of fleet {file.fleet}, fleet.yaml of fleet {fleet.fleet}")
    stacks = Stacks(storage)
    present = {*_other_stacks(stacks, file), *_other_store(store, file)}
    if present:
        raise PlanRefused(
            f"refused, nothing was written: other content exists: {', '.join(sorted(present))}; "
            "move it away, or set another `state` in fleet.yaml"
        )
    stacks.write(file.embedded, file.pulumi, file.settings)
    # Write the store last: no run starts without a store, so none uses a partial import.
    if store.fill(file.store):
        # Tickets may have been opened in the exported store after the export.
        store.number_tickets_after(highest_id_of_lost(utc_now()))
    console.out(
        f"imported {_contents(file)} from {source} to {store.address} and {stacks.address}"
    )
    return 0


_META_KEY = ".pulumi/meta.yaml"
_LAYOUT = b"version: 1\n"
"""Content that the CLI needs; without it, the CLI reads existing stacks as an older format."""

Name = tuple[str, str]
"""A stack, by Pulumi's name of its project and the name of the stack."""


def stacks_of(fleet: Fleet, records: Iterable[StackRecord]) -> tuple[Name, ...]:
    """Return the stacks that a fleet may have: recorded, of each pool and of each provider."""
    known = {(record.project, record.name) for record in records}
    refs = [stack_ref(fleet, name, pool.provider) for name, pool in fleet.dynamic_pools.items()]
    refs += [base_ref(fleet, name) for name in fleet.providers]
    known |= {(ref.project, ref.name) for ref in refs}
    return tuple(
        (project_name(project), name)
        for project, name in sorted(known)
        if (shipped_folder("stacks") / project).is_dir()
    )


class Stacks:
    """Access to the stored stacks of one fleet.yaml, by engine."""

    def __init__(self, storage: Storage) -> None:
        self.address = shown_address(storage.backend)
        self.settings_folder = storage.folder / "pulumi" / "work"
        self._records = Records(storage.embedded)
        self._backend = storage.backend

    @cached_property
    def objects(self) -> Objects:
        """The objects of the backend; raises StoreFailed if only the CLI can read them."""
        objects = open_objects(self._backend)
        if objects is None:
            raise StoreFailed(
                f"only the Pulumi CLI can read {self.address}; move its stacks with `pulumi stack "
                "export` and `pulumi stack import`"
            )
        return objects

    def embedded(self, stacks: Iterable[Name]) -> dict[str, StackRows]:
        """Map stack name to the embedded engine's records, for stacks that exist."""
        found = {name: self._records.read(name) for _, name in stacks}
        return {name: rows for name, rows in found.items() if rows is not None}

    def read(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Map key to Pulumi checkpoint, for keys that exist."""
        found = {key: find_checkpoint(self.objects, key) for key in keys}
        return {key: checkpoint for key, checkpoint in found.items() if checkpoint is not None}

    def read_settings(self, paths: Iterable[str]) -> dict[str, str]:
        """Map path to the text of each settings file that exists, with the encryption salt."""
        found = {}
        for path in paths:
            with touching(path, StoreFailed), suppress(FileNotFoundError):
                found[path] = (self.settings_folder / path).read_text(encoding="utf-8")
        return found

    def write(
        self,
        embedded: Mapping[str, StackRows],
        checkpoints: Mapping[str, dict[str, Any]],
        settings: Mapping[str, str],
    ) -> None:
        """Write the parts of this content that do not exist yet."""
        if checkpoints and self.objects.read(_META_KEY) is None:
            self.objects.create(_META_KEY, _LAYOUT)
        for key, checkpoint in checkpoints.items():
            if find_checkpoint(self.objects, key) is None:
                self.objects.create(key, json.dumps(checkpoint, indent=4).encode())
        for path, text in settings.items():
            file = self.settings_folder / path
            with touching(file, StoreFailed):
                file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                replace_file(file, text.encode(), mode=0o600)
        self._records.fill(embedded)


def _contents(file: StateFile) -> str:
    stacks = many(len(file.embedded) + len(file.pulumi), "stack")
    return f"the store ({many(len(file.store.get('runs', [])), 'run')}) and {stacks}"


def _other_stacks(stacks: Stacks, file: StateFile) -> Iterator[str]:
    """Yield the names of existing stacks and settings that differ from the file."""
    for name, rows in stacks.embedded([("", name) for name in file.embedded]).items():
        if rows != file.embedded[name]:
            yield f"stack {name} of the embedded engine"
    for key, checkpoint in stacks.read(file.pulumi).items():
        if checkpoint != file.pulumi[key]:
            yield f"{stacks.address}/{key}"
    for path, text in stacks.read_settings(file.settings).items():
        if text != file.settings[path]:
            yield str(stacks.settings_folder / path)


def _other_store(store: Store, file: StateFile) -> Iterator[str]:
    try:
        rows = store.dump()
    except StoreMissing:
        return
    if any(rows.values()) and _without_empty_tables(rows) != _without_empty_tables(file.store):
        yield f"the store {store.address}"


def _without_empty_tables(
    rows: Mapping[str, Sequence[Mapping[str, Cell]]],
) -> dict[str, list[dict[str, Cell]]]:
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
        raise FileUnreadable(f"{path}: {_NO_EXPORT}: {first_mistake(error)}") from None
    store = complete(file.store)
    mistake = find_invalid_row(store)
    if mistake:
        raise FileUnreadable(f"{path}: {_NO_EXPORT}: {mistake}")
    return file.altered(store=store)


def unlock(
    fleet: Fleet, store: Store, storage: Storage, dead: str | None, console: Console
) -> int:
    """Remove the locks of killed runs, and of the owner `dead`; raise PlanRefused for others."""
    locks: list[tuple[str, Lock, Callable[[], None]]] = []
    if holder := store.lock_holder():
        held = Lock("", *holder, alive=store.is_held())
        locks.append((f"the lock of fleet {fleet.fleet}", held, partial(store.unlock, holder[0])))
    # The kernel releases locks of the embedded engine.
    objects = open_objects(storage.backend)
    if objects:
        locks += [
            (f"the lock of stack {name}", lock, partial(drop_locks, objects, [lock]))
            for project, name in stacks_of(fleet, store.stacks())
            for lock in find_locks(objects, project, name)
        ]
    kept = []
    for what, lock, release in locks:
        whose = f"{what} is held by {lock.owner} since {lock.since}"
        if lock.alive is False or (lock.alive is None and lock.owner == dead):
            release()
            console.out(f"removed {what}, held by {lock.owner} since {lock.since}")
        elif lock.alive:
            kept.append(f"{whose}, and that process is running: wait for it")
        else:
            kept.append(
                f"{whose}; cannot tell from here whether that process runs; if it is dead: fleet "
                f"state unlock --holder '{lock.owner}'"
            )
    if kept:
        raise PlanRefused("; ".join(kept))
    if not locks:
        console.out("no lock is held")
    return 0
