"""This module carries all that a fleet remembers through a file, from one place to another.

Secrets in the file are as encrypted as they were. Nothing that is there is written over; a
carrying that was cut short is finished by the same command, since what is the same is fine.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from fleet.commands.clock import SystemClock
from fleet.commands.state_stacks import Stacks, stacks_of
from fleet.commands.wiring import lock_owner
from fleet.engines.records import StackRows
from fleet.errors import FileUnreadable, Locked, PlanRefused, StoreMissing, WrongUsage
from fleet.facts.values import Moment, Value
from fleet.plan.saved import LIMIT_BYTES
from fleet.ports import Console
from fleet.render.words import many
from fleet.schema.model import Fleet
from fleet.store.database import DatabaseStore
from fleet.store.dump import Cell, complete, find_mistake
from fleet.store.files import LocalFiles, replace_file
from fleet.store.places import Places

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
