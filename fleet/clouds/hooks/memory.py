"""Records about machines for an operator's commands: numbers, labels and output.

All providers of a fleet use one file, since they share counters. All processes read and write the
file under a lock. If the file is lost, the data is found again or the loss is reported.
"""

import fcntl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from fleet.errors import SourceUnreachable
from fleet.model.facts import WorkerInputs
from fleet.model.values import Moment, Value, later
from fleet.schema.units import write_count, write_duration
from fleet.state.files import replace_file


class Memo(Value):
    """The record of a machine, created before the machine and removed after its deletion."""

    provider: str
    number: int = Field(ge=1, description="Number that no other machine ever had.")
    index: int = Field(ge=0, description="Smallest number that was free in its pool.")
    counters: dict[str, int] = Field(default_factory=dict)
    since: Moment
    inputs: WorkerInputs
    said: str | None = Field(None, description="Output of `new`; None: `new` has not succeeded.")

    @property
    def pool(self) -> str:
        """Return the pool of the machine."""
        return self.inputs.labels.get("pool", "")


class Undeleted(Value):
    """Consecutive failed deletions of a machine."""

    failures: int = Field(ge=1)
    at: Moment = Field(description="The latest.")
    said: str

    @property
    def again(self) -> datetime:
        """Return the time of the next attempt to delete the machine."""
        return self.at + _RETRY_PAUSES[min(self.failures, len(_RETRY_PAUSES)) - 1]

    def __str__(self) -> str:
        """Return a description of the failures for a user."""
        times = write_count(self.failures, "time")
        return (
            f"delete failed {times} in a row, last at {self.at:%F %H:%M}Z: "
            f"{self.said}; next try at {self.again:%F %H:%M}Z"
        )


class Deleting(Value):
    """A successful `delete` of a machine that is still listed."""

    since: Moment = Field(description="When `delete` first succeeded.")
    at: Moment = Field(description="When it last succeeded.")
    tries: int = Field(1, ge=1)

    def again(self, limit: timedelta) -> datetime:
        """Return the time of the next `delete`. `limit` is the permitted time of a deletion."""
        if self.tries == 1:
            return self.since + limit
        return self.at + _RETRY_PAUSES[min(self.tries, len(_RETRY_PAUSES)) - 1]

    def describe(self, limit: timedelta) -> str:
        """Return a description of a deletion that takes longer than its limit."""
        spent = write_duration(int(limit.total_seconds()))
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return (
            f"deleting since {self.since:%F %H:%M}Z: `delete` succeeded {times}, but the machine "
            f"is still listed after timeouts.delete ({spent}) and takes a place of its pool; "
            f"next try at {self.again(limit):%F %H:%M}Z; look at it in the provider's console"
        )


_RETRY_PAUSES = tuple(timedelta(minutes=each) for each in (0, 10, 20, 40, 60))
"""Pauses before the next attempt: after the first failure, after the second, and so on."""
_MAX_ERROR_LENGTH = 300


class _Memos(Value, frozen=False):
    format: Literal["fleet-hook-machines-1"] = "fleet-hook-machines-1"
    last: int = Field(0, description="Latest assigned number.")
    machines: dict[str, Memo] = Field(default_factory=dict)
    listed: tuple[str, ...] = Field((), description="Providers whose `list` has succeeded.")
    undeleted: dict[str, Undeleted] = Field(default_factory=dict)
    deleting: dict[str, Deleting] = later({})


class HookMemory:
    """Records of a provider's machines in a file. Its methods raise ValueError or OSError."""

    def __init__(self, path: Path, provider: str) -> None:
        self._path = path
        self._provider = provider
        self._cached: tuple[object, _Memos] | None = None
        """The version of the file, and its records. Each change replaces the file."""

    def own(self) -> Mapping[str, Memo]:
        """Map machine names to the records of this provider's machines."""
        machines = self._read().machines
        return {name: memo for name, memo in machines.items() if memo.provider == self._provider}

    def has_listed(self) -> bool:
        """Return whether this provider's `list` has ever succeeded."""
        return self._provider in self._read().listed

    def begin(self, inputs: WorkerInputs, counters: Iterable[str], now: datetime) -> Memo:
        """Assign numbers to a machine before its creation. A repeated creation keeps the numbers.

        Call `forget` before another machine uses the same name.
        """
        with self._updating() as memos:
            known = memos.machines.pop(inputs.name, None)
            others = memos.machines.values()
            pool = inputs.labels.get("pool", "")
            if known is None:
                memos.last += 1
            memo = Memo(
                provider=self._provider,
                number=known.number if known else memos.last,
                index=known.index
                if known
                else _smallest_free(each.index for each in others if each.pool == pool),
                counters={
                    name: known.counters[name]
                    if known and name in known.counters
                    else _smallest_free(
                        each.counters[name] for each in others if name in each.counters
                    )
                    for name in counters
                },
                since=now,
                inputs=inputs,
            )
            memos.machines[inputs.name] = memo
            # Each creation follows a successful `list`.
            memos.listed = tuple(sorted({*memos.listed, self._provider}))
        return memo

    def note(self, name: str, said: str) -> None:
        """Record the output of `new` for a machine."""
        with self._updating() as memos:
            memos.machines[name] = memos.machines[name].altered(said=said)

    def forget(self, name: str) -> None:
        """Remove all records of a deleted machine, so that its numbers are free."""
        known = self._read()
        if name in known.machines or name in known.undeleted or name in known.deleting:
            with self._updating() as memos:
                memos.machines.pop(name, None)
                memos.undeleted.pop(name, None)
                memos.deleting.pop(name, None)

    def forget_deletion(self, name: str) -> None:
        """Remove the record of a machine's deletion, and keep the other records."""
        if name in self._read().deleting:
            with self._updating() as memos:
                memos.deleting.pop(name)

    def undeleted(self) -> Mapping[str, Undeleted]:
        """Map machine names to failed deletions."""
        return self._read().undeleted

    def note_undeleted(self, name: str, said: str, now: datetime) -> None:
        """Record a failed deletion of a machine."""
        with self._updating() as memos:
            before = memos.undeleted[name].failures if name in memos.undeleted else 0
            failed = Undeleted(failures=before + 1, at=now, said=said[:_MAX_ERROR_LENGTH])
            memos.undeleted[name] = failed

    def deleting(self) -> Mapping[str, Deleting]:
        """Map machine names to successful deletions of machines that may still be listed."""
        return self._read().deleting

    def note_deleting(self, name: str, now: datetime) -> Deleting:
        """Record a successful `delete` of a machine, and return the record."""
        with self._updating() as memos:
            memos.undeleted.pop(name, None)
            known = memos.deleting.get(name)
            noted = (
                Deleting(since=known.since, at=now, tries=known.tries + 1)
                if known
                else Deleting(since=now, at=now)
            )
            memos.deleting[name] = noted
        return noted

    @contextmanager
    def _updating(self) -> Iterator[_Memos]:
        """Lock the file, yield its records, and write changed records at the end."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            memos = self._parse()
            yield memos
            self._cached = None
            text = memos.model_dump_json(indent=1) + "\n"
            replace_file(self._path, text.encode(), mode=0o600)

    def _read(self) -> _Memos:
        """Return the records; parse the file only if it has changed."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return _Memos()
        version, cached = (found.st_ino, found.st_mtime_ns, found.st_size), self._cached
        if cached is None or cached[0] != version:
            cached = self._cached = version, self._parse()
        return cached[1]

    def _parse(self) -> _Memos:
        try:
            return _Memos.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Memos()
        except ValidationError as error:
            raise ValueError(
                f"{self._path}: not a record of machines (format fleet-hook-machines-1): "
                f"{error.errors()[0]['msg']}; restore it from a backup"
            ) from error


@contextmanager
def noting(name: str) -> Iterator[None]:
    """Raise errors of a machine's record as SourceUnreachable, with the machine's name."""
    try:
        yield
    except (OSError, ValueError) as error:
        whose = "local_fault: " if isinstance(error, OSError) else ""
        raise SourceUnreachable(f"{name}: {whose}{error}") from error


def _smallest_free(taken: Iterable[int]) -> int:
    """Return the smallest unused number, starting at 0."""
    used = frozenset(taken)
    return next(number for number in count() if number not in used)
