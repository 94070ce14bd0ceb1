"""Input and output of an operator's commands, in fleet's format and in Resalloc's format.

The output of `list` must be complete; otherwise it is an error.

Commands for Resalloc print names, store no labels, and expect the output of `new` as later input.
fleet stores this data for them.
"""

import base64
import fcntl
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from fleet.clock import utc_now
from fleet.clouds.hooks.memory import HookMemory, Memo
from fleet.model.facts import Machine, MachineState, WorkerInputs
from fleet.model.values import Moment, Value
from fleet.schema.model import is_named_by_fleet
from fleet.state.processes import CommandFailed, mask

MOST_BYTES = 256 * 1024
"""Maximum bytes of a log. The next call renames a longer log to `HOOK.log.1`."""
_MAX_CALL_BYTES = 1024 * 1024
"""Maximum logged bytes of one call."""
_MAX_LINE_BYTES = 64 * 1024
MOST_MACHINES = 500
MOST_AGE = 14 * 86400
"""Seconds without a call after which the logs of a machine are deleted."""


class HookLog:
    """The log of one call of a command. A `quiet` call logs only errors."""

    def __init__(
        self, path: Path, hook: str, secrets: Collection[str], *, quiet: bool = False
    ) -> None:
        self.path = path
        self._hook = hook
        # Also mask each line of a secret that has several lines.
        self._secrets = frozenset(line for each in secrets for line in (each, *each.splitlines()))
        self._quiet = quiet
        self._file: int | None = None
        self._half = {"stdout": b"", "stderr": b""}
        self._left = _MAX_CALL_BYTES
        self.is_written = False
        if not quiet:
            self._write("begins")

    def hear(self, stream: str, data: bytes) -> None:
        """Log the complete lines of an output. Keep an incomplete last line for later."""
        if stream == "stdout" and self._quiet:
            return
        lines, end, rest = (self._half[stream] + data).rpartition(b"\n")
        self._write_masked(lines + end)
        if len(rest) > _MAX_LINE_BYTES:
            # A truncated secret would not be masked.
            self._write_masked(b"(a line of more than 64 KiB is left out)\n")
            rest = b""
        self._half[stream] = rest

    def end(self, how: str, *, failed: bool) -> None:
        """Log the result of the command."""
        for half in self._half.values():
            self._write_masked(half and half + b"\n")
        if failed or self.is_written:
            self._write(mask(how, self._secrets))
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write_masked(self, lines: bytes) -> None:
        if not lines or self._left <= 0:
            return
        text = mask(lines.decode(errors="replace"), self._secrets).encode()
        self._left -= len(text)
        self._append(text if self._left > 0 else b"(more of this call is left out)\n")

    def _write(self, what: str) -> None:
        now = utc_now().isoformat(timespec="seconds")
        self._append(f"--- {now} {self._hook} {what}\n".encode(errors="replace"))

    def _append(self, text: bytes) -> None:
        with suppress(OSError):
            if self._file is None:
                self._file = _open(self.path)
            os.write(self._file, text)
            self.is_written = True


def tidy(folder: Path) -> None:
    """Delete the logs of machines without recent calls, and the oldest logs over the limit."""
    with suppress(OSError):
        newest = sorted(_latest_calls(folder), reverse=True)
        until = time.time() - MOST_AGE
        for number, (at, path) in enumerate(newest):
            if number >= MOST_MACHINES or at < until:
                shutil.rmtree(path, ignore_errors=True)


def _latest_calls(folder: Path) -> Iterator[tuple[float, Path]]:
    """Yield the time of each machine's latest call, with the folder of the machine's logs."""
    for machine in folder.iterdir():
        with suppress(OSError):  # another run also deletes logs
            if machine.is_dir() and not machine.is_symlink():
                times = [log.stat().st_mtime for log in machine.iterdir()]
                yield max(times, default=machine.stat().st_mtime), machine


def _open(path: Path) -> int:
    """Open a log for appending. If the log is too long, rename it first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileNotFoundError):
        if path.stat().st_size > MOST_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(path, flags, 0o600)


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
MOST_LISTED = 16 * 1024 * 1024
"""Maximum bytes of the output of `list`. A longer output is an error, never truncated."""

_Name = Annotated[str, StringConstraints(pattern=rf"^{NAME.pattern}$")]
_Word = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
_Label = Annotated[str, StringConstraints(max_length=1000)]


class ListedMachine(Value):
    """A machine in the output of `list`."""

    name: _Name
    id: _Word | None = Field(None, description="Default: its name.")
    type: _Word
    created_at: Moment | None = Field(None, description="Default: unknown, like its cost.")
    state: Literal["starting", "running", "stopping", "stopped", "failed"] = "running"
    labels: dict[_Label, _Label] = Field(
        max_length=1_000, description="The value of FLEET_LABELS at `new`."
    )
    image: _Word | None = None
    address: _Word | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="Port for the ticket's client; default: 22."
    )
    data: Annotated[str, StringConstraints(max_length=4096)] = Field(
        "", description="Further data for the ticket's client."
    )


_LISTED = TypeAdapter(Annotated[list[ListedMachine], Field(max_length=100_000)])


def parse(said: str) -> list[ListedMachine]:
    """Parse the output of `list`; raises ValueError if invalid or empty (no machines: `[]`)."""
    if not said.strip():
        raise ValueError("list printed nothing; a list of no machines is []")
    try:
        return _LISTED.validate_json(said)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"list did not print machines as docs/how-to/use-your-own-commands.md says: "
            f"{f'{place}: ' if place else ''}{first['msg']}"
        ) from error


def machine_of(listed: ListedMachine) -> Machine:
    """Convert an entry of the list to a Machine."""
    return Machine(
        name=listed.name,
        id=listed.id or listed.name,
        pool=listed.labels.get("pool", ""),
        type=listed.type,
        state=MachineState(listed.state),
        created_at=None if listed.created_at == _EPOCH else listed.created_at,
        image=listed.image,
        digest=listed.labels.get("digest"),
        address=listed.address,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Time that a command prints if the creation time of a machine is unknown."""
MOST_DATA = 4096
"""Maximum characters of the output of `new` that the client of a ticket gets."""


class OwnInterface:
    """fleet's own interface to commands, see docs/how-to/use-your-own-commands.md."""

    def __init__(self, memory: HookMemory, counters: Collection[str]) -> None:
        self._memory = memory
        self._counters = counters
        self._data: dict[str, dict[str, str]] = {}

    def begin(self, inputs: WorkerInputs, now: datetime) -> None:
        """Record a machine that is about to be created."""
        if self._counters:
            self._memory.begin(inputs, self._counters, now)

    def made(self, name: str, said: str) -> str:
        """Return the id of a created machine: the output of `new`, or else the name."""
        return said.strip() or name

    def forget(self, name: str) -> None:
        """Remove the record of a machine that was deleted or never created."""
        self._memory.forget(name)

    def told(self, name: str) -> Mapping[str, str]:
        """Return the additional environment variables of commands for a machine."""
        memo = self._memory.own().get(name) if self._counters and name else None
        counters = memo.counters if memo else {}
        return {f"FLEET_COUNTER_{key}": str(number) for key, number in counters.items()}

    def rounds(self) -> list[Mapping[str, str]]:
        """Return one empty map of additional variables, because `list` is called once."""
        return [{}]

    def is_empty(self, failure: CommandFailed, going: Collection[str]) -> bool:  # noqa: ARG002 - Resalloc's needs them
        """Return False, because a failed `list` never means that no machine exists."""
        return False

    def parse(self, said: str) -> list[ListedMachine]:
        """Parse the output of `list`, and keep the data for clients of tickets."""
        listed = parse(said)
        self._data = {
            each.name: {"port": str(each.port or ""), "data": each.data} for each in listed
        }
        return listed

    def particulars(self, name: str) -> Mapping[str, str]:
        """Return the port and the data of a machine, for the client of its ticket."""
        return self._data.get(name, {})


class ResallocInterface(OwnInterface):
    """The interface of commands for Resalloc, with its RESALLOC_… variables."""

    def __init__(
        self,
        memory: HookMemory,
        counters: Collection[str],
        is_at_it: Callable[[str], bool],
        whose: tuple[str, Collection[str]],
        *,
        ignores_exit: bool,
    ) -> None:
        """`is_at_it` returns whether `new` of a machine still runs.

        `whose` is the fleet and its pools at this provider. They own all machines with names like
        theirs, even without a record. `ignores_exit` ignores the exit status of a `list` that
        prints nothing.
        """
        super().__init__(memory, counters)
        self._is_at_it = is_at_it
        self._fleet, self._pools = whose
        self._ignores_exit = ignores_exit

    def begin(self, inputs: WorkerInputs, now: datetime) -> None:
        """Record a machine before its creation, since Resalloc's commands store no labels."""
        self._memory.begin(inputs, self._counters, now)

    def made(self, name: str, said: str) -> str:
        """Record the output of `new`, and return the machine's name, which is also its id."""
        self._memory.note(name, said)
        return name

    def told(self, name: str) -> Mapping[str, str]:
        """Return the additional environment variables of commands for a machine."""
        memo = self._memory.own().get(name)
        told = {"RESALLOC_NAME": name} if name else {}
        if memo is None:
            pool = self._pool_of(name)
            return {**told, "RESALLOC_POOL_ID": pool} if pool else told
        data = {}
        if memo.said is not None:
            encoded = base64.b64encode(memo.said.encode()).decode()
            data = {"RESALLOC_RESOURCE_DATA": encoded}
        counters = {f"RESALLOC_NAMED_COUNTER_{k}": str(n) for k, n in memo.counters.items()}
        return {
            **told,
            "RESALLOC_ID": str(memo.number),
            "RESALLOC_POOL_ID": memo.pool,
            "RESALLOC_ID_IN_POOL": str(memo.index),
            **data,
            **counters,
        }

    def rounds(self) -> list[Mapping[str, str]]:
        """Return additional variables for each call of `list`. There is one call per pool.

        The values for "none" are those in command_env and CleanUnknownWorker of Resalloc 4.
        """
        pools = {memo.pool for memo in self._memory.own().values()} | set(self._pools)
        none = {"RESALLOC_ID": "0", "RESALLOC_NAME": "None", "RESALLOC_ID_IN_POOL": "None"}
        return [{**none, "RESALLOC_POOL_ID": pool} for pool in sorted(pools)]

    def is_empty(self, failure: CommandFailed, going: Collection[str]) -> bool:
        """Return whether a failed `list` means that no machine exists.

        As with `grep`, such a `list` prints no output. The result is False while a created machine
        is recorded, unless its `delete` runs (`going`) or has succeeded.
        """
        prints, complains = failure.prints or (True, True)
        made = {name for name, memo in self._memory.own().items() if memo.said is not None}
        if prints or made - self._memory.deleting().keys() - set(going):
            return False
        return self._ignores_exit or (not complains and self._memory.has_listed())

    def parse(self, said: str) -> list[ListedMachine]:
        """Return the machines named in the output of `list`, without machines of other owners."""
        names = sorted(set(said.split()))
        odd = next((name for name in names if not NAME.fullmatch(name)), None)
        if odd is not None:
            raise ValueError(f"list printed {odd[:60]!r}, which is not a machine's name")
        memos = self._memory.own()
        known = [
            self._build_recorded_machine(name, memos[name]) for name in names if name in memos
        ]
        strange = [name for name in names if name not in memos and self._pool_of(name)]
        # These machines of this fleet have no record, but may still be in its stack.
        return known + [
            ListedMachine(
                name=name,
                type="own",
                labels={"fleet": self._fleet, "pool": self._pool_of(name)},
            )
            for name in strange
        ]

    def particulars(self, name: str) -> Mapping[str, str]:
        """Return the output of `new` for a machine, for the client of its ticket."""
        memo = self._memory.own().get(name)
        return {"data": (memo.said or "").strip()[:MOST_DATA]} if memo else {}

    def _pool_of(self, name: str) -> str:
        ours = (each for each in self._pools if is_named_by_fleet(self._fleet, each, name))
        return next(ours, "")

    def _build_recorded_machine(self, name: str, memo: Memo) -> ListedMachine:
        # A machine whose `new` has failed cannot be used.
        unmade = "starting" if self._is_at_it(name) else "failed"
        return ListedMachine.model_validate(
            {
                "name": name,
                "type": memo.inputs.type,
                "image": memo.inputs.image,
                "created_at": memo.since,
                "state": "running" if memo.said is not None else unmade,
                "labels": memo.inputs.labels,
            }
        )


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock file."""
    try:
        with lock.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
