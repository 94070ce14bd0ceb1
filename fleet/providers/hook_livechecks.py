"""This module remembers how many looks at each machine have failed in a row.

A machine is looked at again only when its last look is long enough ago: however often somebody
plans, what fails for a moment has not failed for long. A lost memory begins at nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field, ValidationError

from fleet.facts import Machine, MachineState
from fleet.facts.values import Moment, Value
from fleet.store.files import replace_file


class Look(Value):
    """The latest livecheck of one machine."""

    at: Moment
    since: Moment | None = Field(None, description="The first look that is remembered.")
    failures: int = Field(ge=0, description="How many have failed in a row, this one counted.")
    worked: bool = Field(False, description="One of its looks found it to work.")


class _Looks(Value):
    format: Literal["fleet-livechecks-1"] = "fleet-livechecks-1"
    machines: dict[str, Look] = Field(default_factory=dict)


class Memory(Protocol):
    """Where looks are noted; both raise OSError, or FleetError where that is a store."""

    def read(self) -> str | None:
        """Return what was noted last; None: nothing was."""

    def write(self, text: str) -> None:
        """Note this in its place."""


class FileMemory:
    """A file of this computer, where looks are noted."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> str | None:
        """Return what the file holds; None where there is none."""
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, text: str) -> None:
        """Write the file whole."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, text.encode(), mode=0o600)


class Livechecks:
    """The looks at one provider's machines, and where they are noted."""

    def __init__(
        self,
        memory: Memory,
        works: Callable[[Machine], bool | None] | None,
        *,
        every: int,
        at_once: int,
        waits: bool = False,
    ) -> None:
        """`works` looks at one machine, and is called from so many threads at once.

        It returns None where it could not look: then the last look counts on.
        Without it, nobody looks: what is noted counts, and stays as it is.
        With `waits`, one that never worked is looked at each time: it is about to.
        """
        self._memory = memory
        self._works = works
        self._at_once = at_once
        self._every = timedelta(seconds=every)
        self._waits = waits

    def failures(self, machines: Sequence[Machine], now: datetime) -> Mapping[str, int]:
        """Return by id how many livechecks of a machine have failed in a row.

        Raises OSError or ValueError where that cannot be noted.
        """
        return {key: look.failures for key, look in self.looks(machines, now).items()}

    def looks(self, machines: Sequence[Machine], now: datetime) -> Mapping[str, Look]:
        """Return the latest look at each machine that runs, by id; raises as `failures` does."""
        before = self._read()
        running = [each for each in machines if each.state is MachineState.RUNNING]
        known = {each.id: before[each.id] for each in running if each.id in before}
        # A clock that was set back must not stop livechecks until it has caught up.
        fresh = {
            key
            for key, look in known.items()
            if abs(now - look.at) < self._every and not (self._waits and not look.worked)
        }
        if self._works is None:
            return known
        due = [each for each in running if each.id not in fresh]
        with ThreadPoolExecutor(self._at_once) as threads:
            results = list(threads.map(self._works, due))
        for machine, works in zip(due, results, strict=True):
            if works is None:
                continue
            last = known.get(machine.id)
            failed = last.failures if last else 0
            worked = works or (last is not None and last.worked)
            known[machine.id] = Look(
                at=now,
                since=last.since or last.at if last else now,
                failures=0 if works else failed + 1,
                worked=worked,
            )
        if known != before:
            self._write(known)
        return known

    def _read(self) -> dict[str, Look]:
        text = self._memory.read()
        if text is None:
            return {}
        try:
            return _Looks.model_validate_json(text).machines
        except ValidationError as error:
            raise ValueError(
                f"{self._memory}: not a memory of livechecks (format fleet-livechecks-1): "
                f"{error.errors()[0]['msg']}; remove it, and counting begins anew"
            ) from error

    def _write(self, looks: dict[str, Look]) -> None:
        self._memory.write(_Looks(machines=looks).model_dump_json(indent=1) + "\n")
