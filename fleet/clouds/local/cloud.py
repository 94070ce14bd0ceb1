"""The provider kind `local`. Each machine is a folder on this computer, and its process.

A machine exists as soon as its folder has a record of its process. A creation that was killed
earlier has created no machine, and the next creation removes its files.

A running process is a worker. It creates the file `busy` in its home while it works. It must start
no more work while its home has a file `draining`.
"""

import fcntl
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Literal

from pydantic import ValidationError

from fleet.clouds.cloud import Cloud
from fleet.errors import CreationRefused, SourceUnreachable, WorkerBusy
from fleet.model.facts import (
    Listing,
    Machine,
    MachineState,
    Unknown,
    Worker,
    WorkerInputs,
    WorkerState,
)
from fleet.model.user_data import UserData, read_user_data
from fleet.model.values import Moment, Value, first_mistake
from fleet.ports import Clock, Tell
from fleet.schema.model import DebusineQueue, Faults, LocalProvider
from fleet.state.files import replace_file
from fleet.state.processes import LOG, Launch, end, find, is_alive, start

MACHINE = "machine.json"
HOME = "home"
LOCK = ".lock"
_PARTIAL = ".partial-"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ETC_PREFIX = "/etc/"
_CONSOLE_BYTES = 1_000_000
_REFUSALS = {
    "error": "server_error: something went wrong (faults.create is error)",
    "quota": "resource_limit_exceeded: quota reached (faults.create is quota)",
    "out-of-stock": "resource_unavailable (faults.create is out-of-stock)",
}


class Record(Value):
    """The record in the folder of a machine."""

    format: Literal["fleet-local-1"] = "fleet-local-1"
    id: str
    inputs: WorkerInputs
    created_at: Moment
    boots: bool = True
    draining_since: Moment | None = None
    disabled: bool = False
    expires: Moment | None = None


@contextmanager
def reaching(what: str) -> Iterator[None]:
    """Raise errors of the body as SourceUnreachable, with the name of the machine."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise SourceUnreachable(f"{what} is unreachable: {_describe_error(error)}") from error


class LocalMachines:
    """The machines in one folder. Implements Provider, and LocalCloud for the embedded engine."""

    def __init__(
        self, path: Path, clock: Clock, faults: Faults, environment: Mapping[str, str]
    ) -> None:
        """Processes get `environment` and HOME, because fleet's own environment has secrets."""
        self.path = path
        self._clock = clock
        self._faults = faults
        self._environment = environment

    def create(self, inputs: WorkerInputs, user_data: str = "") -> str:
        """Create a machine and return its id; raises CreationRefused if no machine was created."""
        record = Record(
            id=f"local-{secrets.token_hex(4)}",
            inputs=inputs,
            created_at=self._clock.now(),
            boots={inputs.type, inputs.image}.isdisjoint(self._faults.never_boots),
        )
        try:
            self._check(inputs)
            data = read_user_data(user_data) if user_data else UserData((), 0)
            self._make(record, data)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            whose = "local_fault: " if isinstance(error, OSError) else ""
            raise CreationRefused(f"{inputs.name}: {whose}{_describe_error(error)}") from error
        return record.id

    def delete(self, machine_id: str) -> None:
        """Stop a machine's process and its children, and remove its folder, if they exist."""
        with reaching(machine_id):
            for folder, record in self.records():
                if record.id == machine_id:
                    self._remove(folder, machine_id)

    def extend(self, machines: Collection[str], until: datetime) -> None:
        """Write the expiry time of machines, by id. Skip machines that do not exist."""
        with reaching("a machine on this computer"):
            for _, record in self.records():
                if record.id in machines:
                    self.rewrite(record, expires=until)

    def list(self, fleet: str) -> Listing | Unknown:
        """Return this fleet's machines. A machine whose process has ended is `stopped`."""
        now = self._clock.now()
        try:
            ours = tuple(
                (folder, record)
                for folder, record in self.records()
                if record.inputs.labels.get("fleet") == fleet
            )
            machines = tuple(_machine(folder, record) for folder, record in ours)
            workers = self.workers(ours)
            return Listing(read_at=now, machines=machines, notes_expiry=True, workers=workers)
        except (OSError, ValueError) as error:
            return Unknown(
                unknown=f"the machines on this computer are unknown: {_describe_error(error)}"
            )

    def console(self, machine_id: str) -> str:
        """Return the end of the output of a machine's process."""
        with reaching(machine_id):
            for folder, record in self.records():
                if record.id == machine_id:
                    with (folder / LOG).open("rb") as log:
                        size = log.seek(0, os.SEEK_END)
                        log.seek(max(0, size - _CONSOLE_BYTES))
                        return log.read().decode(errors="replace")
        raise SourceUnreachable(f"there is no machine {machine_id}")

    def workers(self, machines: Sequence[tuple[Path, Record]]) -> tuple[Worker, ...] | None:  # noqa: ARG002 - of those who do
        """Return None, because the workers on these machines register at a queue."""
        return None

    def rewrite(self, record: Record, **changes: object) -> None:
        """Change fields of a machine's record; do nothing if the machine does not exist."""
        path = self.path / record.inputs.name / MACHINE
        with self._hold_lock(fcntl.LOCK_EX):
            if path.exists() and _read(path).id == record.id:
                text = _read(path).altered(**changes).model_dump_json(indent=1) + "\n"
                replace_file(path, text.encode(), mode=0o600)

    def _check(self, inputs: WorkerInputs) -> None:
        if not _NAME.fullmatch(inputs.name):
            raise ValueError("invalid_input: a name is small letters, digits and hyphens")
        if self._faults.create:
            raise ValueError(_REFUSALS[self._faults.create])
        program = next(iter(self._command(inputs)), "")
        if shutil.which(program, path=self._environment.get("PATH")) is None:
            raise ValueError(f"invalid_input: there is no program {program!r} to run")

    def _command(self, inputs: WorkerInputs) -> tuple[str, ...]:
        """Return the command of a machine, with the machine's name and home inserted."""
        home = str(self.path / inputs.name / HOME)
        parts = shlex.split(inputs.settings.get("run", ""))
        return tuple(part.replace("{home}", home).replace("{name}", inputs.name) for part in parts)

    def _make(self, record: Record, data: UserData) -> None:
        folder = self.path / record.inputs.name
        self.path.mkdir(parents=True, exist_ok=True)
        with self._hold_lock(fcntl.LOCK_EX) as lock:
            self._sweep()
            if folder.exists():
                raise ValueError(f"uniqueness_error: the name is already used: {folder}")
            made = self.path / f"{_PARTIAL}{record.id}"
            _create_folder(made, record, data)
            made.rename(folder)
            command = self._command(record.inputs) if record.boots else ("sleep", "infinity")
            home = folder / HOME
            environment = {**self._environment, "HOME": str(home)}
            start(Launch(folder, home, command, environment, data.delay), lock)
        # From this line on the machine may exist, so a failure is no CreationRefused.
        with reaching(record.inputs.name), self._hold_lock(fcntl.LOCK_EX):
            if find(folder) is not None:
                return
            said = (folder / LOG).read_text(encoding="utf-8", errors="replace").strip()
            self._sweep()
        raise ValueError(f"its process did not start: {said}")

    def _remove(self, folder: Path, machine_id: str) -> None:
        process = find(folder)
        if process:
            end(process)
        with self._hold_lock(fcntl.LOCK_EX):
            if (folder / MACHINE).exists() and _read(folder / MACHINE).id == machine_id:
                # After the rename it is no machine, even if the removal is interrupted.
                shutil.rmtree(folder.rename(self.path / f"{_PARTIAL}{machine_id}"))

    def _sweep(self) -> None:
        """Remove the files of killed creations and deletions. The caller must hold the lock."""
        for folder in self.path.iterdir():
            is_ours = folder.name.startswith(_PARTIAL) or (folder / MACHINE).exists()
            if is_ours and find(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)

    def records(self) -> tuple[tuple[Path, Record], ...]:
        """Return the folder and the record of each machine, sorted by name."""
        lock = self.path / LOCK
        if not self.path.exists() or lock not in self.path.iterdir():
            return ()  # no machine was ever created here
        with self._hold_lock(fcntl.LOCK_SH):
            return tuple(
                (folder, _read(folder / MACHINE))
                for folder in sorted(self.path.iterdir())
                if not folder.name.startswith(".") and find(folder) is not None
            )

    @contextmanager
    def _hold_lock(self, operation: int) -> Iterator[IO[str]]:
        """Hold the lock of the folder, which a starting process also holds."""
        with (self.path / LOCK).open("a" if operation == fcntl.LOCK_EX else "r") as lock:
            fcntl.flock(lock, operation)
            yield lock


def _create_folder(folder: Path, record: Record, data: UserData) -> None:
    """Create the folder of a machine. Files for /etc are written to its ~/.config instead."""
    # The command may run as another user, who may enter the folder but not list it.
    folder.mkdir(mode=0o711)
    home = folder / HOME
    home.mkdir(mode=0o700)
    _write(folder / LOG, "")
    _write(folder / MACHINE, record.model_dump_json(indent=1) + "\n")
    for file in data.files:
        path = home / ".config" / file.path.removeprefix(_ETC_PREFIX)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, file.content, int(file.permissions, 8))


def _read(path: Path) -> Record:
    try:
        return Record.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(
            f"{path}: not a machine's record (format fleet-local-1): {first_mistake(error)}; "
            "restore it, or end its process by hand and remove its folder"
        ) from error


def _write(path: Path, text: str, permissions: int = 0o600) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, permissions)
        file.write(text)


def _machine(folder: Path, record: Record) -> Machine:
    inputs = record.inputs
    process = find(folder)
    state = MachineState.RUNNING if record.boots else MachineState.STARTING
    return Machine(
        name=inputs.name,
        id=record.id,
        pool=inputs.labels.get("pool", ""),
        type=inputs.type,
        state=state if process and is_alive(process) else MachineState.STOPPED,
        created_at=record.created_at,
        image=inputs.image,
        digest=inputs.labels.get("digest"),
        expires=record.expires,
    )


def _describe_error(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)


BUSY = "busy"
DRAINING = "draining"


class LocalWorkers(LocalMachines):
    """Machines on this computer that are also workers, with a Registry of the workers."""

    def workers(self, machines: Sequence[tuple[Path, Record]]) -> tuple[Worker, ...]:
        """Return the workers on machines that have booted."""
        return tuple(_worker(folder, record) for folder, record in machines if record.boots)

    def drain(self, worker: str) -> None:
        """Prevent a worker from starting new work. Its current work continues."""
        with self._found_worker(worker) as (folder, record):
            (folder / HOME / DRAINING).touch()
            self.rewrite(record, draining_since=record.draining_since or self._clock.now())

    def resume(self, worker: str) -> None:
        """Permit a drained worker to start work again."""
        with self._found_worker(worker) as (folder, record):
            (folder / HOME / DRAINING).unlink(missing_ok=True)
            self.rewrite(record, draining_since=None)

    def disable(self, worker: str) -> None:
        """Disable a worker permanently; raises WorkerBusy if the worker is busy."""
        with self._found_worker(worker) as (folder, record):
            if _worker(folder, record).state is WorkerState.BUSY:
                raise WorkerBusy(f"worker {worker} is busy; it was not disabled")
            self.rewrite(record, disabled=True)

    def revoke(self, worker: str) -> None:
        """Disable the worker of a machine that never booted; raises WorkerBusy otherwise."""
        with self._found_worker(worker) as (_, record):
            if record.boots:
                raise WorkerBusy(f"worker {worker} has registered meanwhile; it was not revoked")
            self.rewrite(record, disabled=True)

    def release(self, worker: str) -> None:
        """Do nothing, because a worker is deleted with its machine."""

    def confirm(self, tell: Tell) -> None:
        """Do nothing, because changes of these workers have an immediate effect."""

    @contextmanager
    def _found_worker(self, worker: str) -> Iterator[tuple[Path, Record]]:
        with reaching(f"worker {worker}"):
            found = [each for each in self.records() if each[1].inputs.name == worker]
            if not found:
                raise ValueError(f"no machine of {self.path} is named so")
            yield found[0]


def _worker(folder: Path, record: Record) -> Worker:
    process = find(folder)
    disabled = record.disabled or process is None or not is_alive(process)
    busy = (folder / HOME / BUSY).exists()
    return Worker(
        name=record.inputs.name,
        machine=record.inputs.name,
        pool=record.inputs.labels.get("pool"),
        # A process that has ended does not restart, so its worker is disabled.
        state=WorkerState.DISABLED if disabled else WorkerState.BUSY if busy else WorkerState.IDLE,
        draining=record.draining_since is not None,
        since=record.draining_since or record.created_at,
    )


class Local(Cloud[LocalProvider]):
    """A folder of machines. Each machine is a process on this computer."""

    def open(self) -> LocalMachines:
        """Return the machines. Without a Debusine queue, each machine is also a worker."""
        site, path = self.site, self.declared.path
        queues = site.fleet.queues.values()
        kind = (
            LocalMachines
            if any(isinstance(queue, DebusineQueue) for queue in queues)
            else LocalWorkers
        )
        folder = site.folder / path if path else site.storage.folder / f"local-{site.name}"
        return kind(folder, site.clock, self.declared.faults, site.bare_environment)
