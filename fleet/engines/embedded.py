"""The embedded engine. It stores stacks in SQLite, with one transaction per step.

Each step is recorded before it starts and after it ends. So the next run can finish the steps of a
killed run without creating a machine twice or losing a machine.
"""

import fcntl
import json
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, assert_never, runtime_checkable

import sqlalchemy as sa

from fleet.engines.projects import (
    AbsenceCheck,
    Project,
    Resource,
    check_holds,
    check_owner,
    check_provider,
    check_still_there,
    evaluate,
    find_listed,
    is_made_from,
    load_project,
    run_steps,
    two_step_change,
)
from fleet.errors import (
    CreationRefused,
    DeletionPending,
    FileUnreadable,
    Locked,
    PlanRefused,
    StackFailed,
    StoreFailed,
    touching,
)
from fleet.model.facts import Listing, Machine, Stack, Unknown, WorkerInputs
from fleet.model.values import Value
from fleet.ports import NO_USER_DATA, Progress, StackChange, StackRef, StackStep
from fleet.state.database import connect_file, key_columns, not_null_columns
from fleet.state.files import make_private
from fleet.state.storage import sqlite_url

_DAMAGE_ERRORS = ("file is not a database", "database disk image is malformed")
_RESTORE_ADVICE = (
    "; restore a backup, or move the file away and give up its stacks, one by one, with "
    "`fleet state init --forget-stack STACK` (docs/how-to/restore-lost-state.md)"
)
_METADATA = sa.MetaData()
_STACKS = sa.Table(
    "embedded_stacks",
    _METADATA,
    *key_columns("name"),
    *not_null_columns(sa.Text, "project", "provider", "engine"),
    *not_null_columns(sa.Integer, "serial"),
)
_RESOURCES = sa.Table(
    "embedded_resources",
    _METADATA,
    sa.Column("stack", sa.Text, sa.ForeignKey("embedded_stacks.name"), primary_key=True),
    *key_columns("name"),
    *not_null_columns(sa.Text, "type", "inputs", "state"),
    sa.Column("id", sa.Text),
)


class ResourceRow(Value):
    """A recorded resource. The states `making` and `deleting` mean an unfinished step."""

    name: str
    type: str
    inputs: dict[str, Any]
    state: Literal["making", "made", "deleting"]
    id: str | None = None


class StackRows(Value):
    """A recorded stack with its resources."""

    project: str
    provider: str
    engine: Literal["embedded", "pulumi"]
    serial: int
    rows: dict[str, ResourceRow]


class Records:
    """The tables of the embedded engine. A read never creates the tables."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._url = sa.make_url(sqlite_url(path))
        self._write_lock = threading.Lock()

    def read(self, name: str) -> StackRows | None:
        """Return the recorded stack; None if the stack never existed."""
        if not self.path.exists():
            return None
        with self._transaction() as connection:
            if not sa.inspect(connection).has_table(_STACKS.name):
                return None
            columns = [column for column in _STACKS.c if column.name != "name"]
            stacks = connection.execute(sa.select(*columns).where(_STACKS.c.name == name))
            stack = stacks.mappings().first()
            if stack is None:
                return None
            columns = [column for column in _RESOURCES.c if column.name != "stack"]
            found = connection.execute(
                sa.select(*columns).where(_RESOURCES.c.stack == name).order_by("name")
            )
            rows = {
                each["name"]: ResourceRow(**{**each, "inputs": json.loads(each["inputs"])})
                for each in found.mappings()
            }
            return StackRows(**stack, rows=rows)

    def fill(self, stacks: Mapping[str, StackRows]) -> None:
        """Record complete stacks atomically. Stacks that are already recorded do not change."""
        new = {name: each for name, each in stacks.items() if self.read(name) is None}
        if not new:
            return
        with self._transaction() as connection:
            _METADATA.create_all(connection)
            for name, each in new.items():
                said = each.model_dump(exclude={"rows"})
                connection.execute(sa.insert(_STACKS).values(name=name, **said))
                for row in each.rows.values():
                    connection.execute(sa.insert(_RESOURCES).values(_row_values(name, row)))

    def begin(self, ref: StackRef) -> None:
        """Record a new stack, or the new provider of a stack without machines."""
        place = {"project": ref.project, "provider": ref.provider}
        known = sa.update(_STACKS).where(_STACKS.c.name == ref.name)
        new = {"name": ref.name, "engine": "embedded", "serial": 1}
        with self._transaction() as connection:
            _METADATA.create_all(connection)
            moved = known.values(serial=_STACKS.c.serial + 1, **place)
            if not connection.execute(moved).rowcount:
                connection.execute(sa.insert(_STACKS).values(new | place))

    def put(self, stack: str, row: ResourceRow) -> None:
        """Record a resource. The state in the record shows whether a step is about to start."""
        with self._transaction() as connection:
            _delete_resource(connection, stack, row.name)
            connection.execute(sa.insert(_RESOURCES).values(_row_values(stack, row)))

    def drop(self, stack: str, name: str) -> None:
        """Remove the record of a deleted resource."""
        with self._transaction() as connection:
            _delete_resource(connection, stack, name)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        what = f"{self.path}: the embedded engine's state"
        try:
            with touching(what, StoreFailed):
                make_private(self.path)
                # Concurrent steps write one after the other.
                with self._write_lock, connect_file(self._url) as connection, connection.begin():
                    yield connection
        except sa.exc.SQLAlchemyError as error:
            cause = str(getattr(error, "orig", None) or type(error).__name__)
            cause += _RESTORE_ADVICE if cause in _DAMAGE_ERRORS else ""
            raise StoreFailed(f"{what}: {cause}") from error


def _row_values(stack: str, row: ResourceRow) -> dict[str, Any]:
    inputs = json.dumps(row.inputs, sort_keys=True)
    return {"stack": stack, **row.model_dump(exclude={"inputs"}), "inputs": inputs}


def _delete_resource(connection: sa.Connection, stack: str, name: str) -> None:
    """Remove the record of a resource, and increment the serial of its stack."""
    of_it = (_RESOURCES.c.stack == stack, _RESOURCES.c.name == name)
    connection.execute(sa.delete(_RESOURCES).where(*of_it))
    connection.execute(
        sa.update(_STACKS).where(_STACKS.c.name == stack).values(serial=_STACKS.c.serial + 1)
    )


@runtime_checkable
class LocalCloud(Protocol):
    """A provider that this process calls directly, not through Pulumi."""

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        """Create a machine and return its id; raises CreationRefused if no machine was created."""

    def delete(self, machine_id: str) -> None:
        """Delete a machine. Do nothing if it does not exist."""

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines of a fleet; Unknown if the machines cannot be listed."""


class _Change(NamedTuple):
    """A change of one resource. `found` is the id of a machine that already exists, or None."""

    kind: Literal["create", "delete", "update", "replace", "keep", "forget"]
    name: str
    resource: Resource | None = None
    row: ResourceRow | None = None
    found: str | None = None
    changed: tuple[str, ...] = ()
    """Names of the inputs that differ from the recorded inputs."""


class EmbeddedEngine:
    """Engine that applies stacks of local providers, and only evaluates all other stacks."""

    name: Literal["embedded", "pulumi"] = "embedded"

    def __init__(
        self,
        database: Path,
        providers: Mapping[str, LocalCloud],
        *,
        unreliable_listings: Collection[str] = (),
    ) -> None:
        """`unreliable_listings` has the names of providers whose listings may omit machines."""
        self._records = Records(database)
        self._providers = providers
        self._unreliable = unreliable_listings
        self._absences = AbsenceCheck()

    def evaluate(self, ref: StackRef, inputs: Mapping[str, Any]) -> tuple[Resource, ...]:
        """Return the resources that a program declares; raises PlanRefused for invalid inputs."""
        project = load_project(ref.project)
        return evaluate(lambda: project.program(inputs), project=ref.project, stack=ref.name)

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the recorded stack; None if it never existed, Unknown if it is unreadable."""
        try:
            recorded = self._read_checked(ref)
        except StoreFailed as error:
            return Unknown.of(error)
        if recorded is None:
            return None
        project = load_project(recorded.project)
        rows = recorded.rows.values()
        # An unfinished creation still has a wanted worker, an unfinished deletion does not.
        wanted = [
            project.worker_of(row.type, row.inputs) for row in rows if row.state != "deleting"
        ]
        return Stack(
            engine=recorded.engine,
            provider=recorded.provider,
            serial=recorded.serial,
            workers=tuple(worker for worker in wanted if worker),
            ids={row.name: row.id for row in rows if row.id and row.state != "making"},
            interrupted=any(row.state != "made" for row in rows),
        )

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Return the steps that `up` would do, sorted by name, without unchanged resources."""
        moves = self._plan_changes(ref, workers, self._read_checked(ref))
        return tuple(step for move in moves if (step := _convert_step(move)))

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Apply the changes step by step. After a failed step, continue with the other steps."""

        def do(move: _Change) -> None:
            self._make_change(ref, move, user_data.get(move.name, ""))

        self._cloud(ref)
        with self._hold_lock(ref):
            recorded = self._read_checked(ref)
            moves = self._plan_changes(ref, workers, recorded)
            _refuse_changed_inputs(ref, moves)
            exists = {move.name for move in moves if move.found or move.kind != "create"}
            check_still_there(ref, user_data, exists)
            if recorded is None or recorded.provider != ref.provider:
                self._records.begin(ref)
            done: list[StackStep] = []
            failed: dict[str, str] = {}
            # Create first and delete last, as Pulumi does.
            new = [move for move in moves if move.kind != "delete"]
            for some in (new, [move for move in moves if move.kind == "delete"]):
                with closing(run_steps(self._cloud(ref), some, do)) as ended:
                    for move, error in ended:
                        if isinstance(error, DeletionPending):
                            continue  # it stays recorded until its provider no longer lists it
                        if error:
                            is_ours = isinstance(error, StoreFailed | FileUnreadable)
                            failed[move.name] = f"{'local_fault: ' * is_ours}{error}"
                        elif step := _convert_step(move):
                            progress(step)
                            done.append(step)
        if failed:
            others = f"{len(done)} other step{' is' if len(done) == 1 else 's are'} done"
            parts = [*failed.values(), *([f"{others} and recorded"] if done else [])]
            raise StackFailed(
                f"stack {ref.name}: {'; '.join(parts)}",
                done=tuple(step.worker for step in done),
                failed=failed,
            )
        return tuple(sorted(done, key=lambda step: step.worker))

    def prepare(
        self, ref: StackRef, workers: Sequence[WorkerInputs]
    ) -> AbstractContextManager[StackChange]:
        """Prepare a change. The change computes its steps again when it is made."""
        return nullcontext(two_step_change(self, ref, workers))

    def forget(self, ref: StackRef, worker: str) -> None:
        """Remove the record of a worker, but keep its machine."""
        with self._hold_lock(ref):
            recorded = self._read_checked(ref)
            check_holds(ref, worker, recorded.rows if recorded else ())
            self._records.drop(ref.name, worker)

    def _read_checked(self, ref: StackRef) -> StackRows | None:
        recorded = self._records.read(ref.name)
        if recorded:
            check_owner(ref, mine=self.name, owner=recorded.engine)
            check_provider(ref, recorded.provider, holds_machines=bool(recorded.rows))
        return recorded

    def _plan_changes(
        self, ref: StackRef, workers: Sequence[WorkerInputs], recorded: StackRows | None
    ) -> tuple[_Change, ...]:
        project = load_project(ref.project)
        inputs = {"workers": [worker.model_dump(mode="json") for worker in workers]}
        wanted = {each.name: each for each in self.evaluate(ref, inputs)}
        for resource in wanted.values():
            if resource.secrets:
                raise PlanRefused(
                    f"{resource.name}: {', '.join(resource.secrets)} is secret, and the embedded "
                    "engine stores no secrets; use `engine: pulumi`"
                )
            if project.worker_of(resource.type, resource.inputs) is None:
                raise PlanRefused(
                    f"{resource.name}: the embedded engine cannot create {resource.type}; "
                    "use `engine: pulumi`"
                )
        rows = recorded.rows if recorded else {}
        machines = self._find_unfinished(ref, project, rows) | self._find_unrecorded(
            ref, workers, rows
        )
        return tuple(
            _plan_change(name, wanted.get(name), rows.get(name), machines.get(name))
            for name in sorted({*wanted, *rows})
        )

    def _find_unfinished(
        self, ref: StackRef, project: Project, rows: Mapping[str, ResourceRow]
    ) -> dict[str, Machine]:
        """Map names of resources with an unfinished step to their machines, if these exist."""
        unfinished = {
            row.name: worker
            for row in rows.values()
            if row.state != "made" and (worker := project.worker_of(row.type, row.inputs))
        }
        if not unfinished:
            return {}
        found = find_listed(self._cloud(ref), unfinished)
        if isinstance(found, Unknown):
            raise StackFailed(
                f"stack {ref.name}: an earlier run did not finish "
                f"{', '.join(sorted(unfinished))}, and the provider's list is unknown: "
                f"{found.unknown}"
            )
        if ref.provider in self._unreliable:
            unlisted = [unfinished[name] for name in unfinished.keys() - found]
            ids = {each.name: rows[each.name].id or each.name for each in unlisted}
            gone = self._absences.surely_gone(self._cloud(ref), unlisted, ids)
            if unsure := sorted(ids.keys() - set(gone)):
                raise StackFailed(
                    f"stack {ref.name}: an earlier run did not finish {', '.join(unsure)}, and "
                    "two lists of the provider differ; the next apply lists again"
                )
        return {k: each for k, each in found.items() if is_made_from(each, unfinished[k])}

    def _find_unrecorded(
        self, ref: StackRef, workers: Sequence[WorkerInputs], rows: Mapping[str, ResourceRow]
    ) -> dict[str, Machine]:
        """Map names of wanted workers without a record to their machines that exist.

        If the provider cannot list its machines, the creation fails later.
        """
        new = {worker.name: worker for worker in workers if worker.name not in rows}
        cloud = self._providers.get(ref.provider)
        found = find_listed(cloud, new) if cloud else {}
        if isinstance(found, Unknown):
            return {}
        return {name: each for name, each in found.items() if is_made_from(each, new[name])}

    def _cloud(self, ref: StackRef) -> LocalCloud:
        cloud = self._providers.get(ref.provider)
        if cloud is None:
            raise PlanRefused(
                f"provider {ref.provider!r} is not local, so the embedded engine only evaluates "
                "its stacks; use `engine: pulumi`"
            )
        return cloud

    def _make_change(self, ref: StackRef, move: _Change, user_data: str) -> None:
        match move.kind:
            case "create" if move.resource:
                self._create(ref, move.resource, move.found, user_data)
            case "delete" if move.row:
                machine_id = move.found or move.row.id or ""
                self._records.put(ref.name, move.row.altered(state="deleting", id=machine_id))
                self._cloud(ref).delete(machine_id)
                self._records.drop(ref.name, move.name)
            case "keep" if move.row and move.row.state != "made":
                self._records.put(ref.name, move.row.altered(state="made"))
            case "forget":
                # The machine was deleted, but its provider may still have a record of it.
                self._cloud(ref).delete((move.row and move.row.id) or move.name)
                self._records.drop(ref.name, move.name)
            case "create" | "delete" | "keep" | "update" | "replace":
                pass
            case _:
                assert_never(move.kind)

    def _create(
        self, ref: StackRef, resource: Resource, found: str | None, user_data: str
    ) -> None:
        row = ResourceRow(
            name=resource.name,
            type=resource.type,
            inputs=resource.inputs,
            state="making",
            id=found,
        )
        self._records.put(ref.name, row)
        try:
            machine_id = found or self._cloud(ref).create(
                WorkerInputs.model_validate(resource.inputs), user_data
            )
        except CreationRefused:
            self._records.drop(ref.name, row.name)
            raise
        self._records.put(ref.name, row.altered(state="made", id=machine_id))

    @contextmanager
    def _hold_lock(self, ref: StackRef) -> Iterator[None]:
        path = self._records.path
        with touching(path, StoreFailed):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = path.with_name(f"{path.name}.{ref.name}.lock").open("a")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Locked(f"stack {ref.name}: another apply is changing {path}") from error
            yield


def _plan_change(
    name: str, resource: Resource | None, row: ResourceRow | None, machine: Machine | None
) -> _Change:
    found = machine.id if machine else None
    if resource is None:
        if row and row.state != "made" and found is None:
            return _Change("forget", name, row=row)
        return _Change("delete", name, row=row, found=found)
    if row is None or row.state == "making" or (row.state == "deleting" and found is None):
        return _Change("create", name, resource, row, found)
    inputs, before = resource.inputs, row.inputs
    changed = tuple(sorted(key for key in inputs if inputs[key] != before.get(key)))
    if not changed:
        return _Change("keep", name, resource, row)
    in_place = {*changed} <= {"labels", "settings"}
    return _Change("update" if in_place else "replace", name, resource, row, changed=changed)


def _convert_step(move: _Change) -> StackStep | None:
    match move.kind:
        case "keep" | "forget":
            return None
        case operation:
            return StackStep(worker=move.name, operation=operation, detail=", ".join(move.changed))


def _refuse_changed_inputs(ref: StackRef, moves: Sequence[_Change]) -> None:
    what = "; ".join(
        f"{move.kind} {move.name} ({', '.join(move.changed)})" for move in moves if move.changed
    )
    if what:
        raise PlanRefused(
            f"stack {ref.name}: {what}: a worker's inputs are passed back as they were recorded"
        )
