"""Whether machines are ready: livechecks are run and ports tried, and the last looks remembered.

At each provider a few of a person's own commands run at once. A machine is looked at again only
when its last look is long enough ago: however often somebody plans, what fails for a moment has
not failed for long. A lost memory begins at nothing.

A listing says then how often in a row each did not answer; what that means, the core decides.
"""

import errno
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field, ValidationError

from fleet.errors import FleetError, SourceUnreachable
from fleet.model.facts import Listing, Machine, MachineState, Unknown
from fleet.model.values import Moment, Value
from fleet.planner.inventory import heirs_of
from fleet.ports import Clock, Prober
from fleet.schema.model import Fleet, Ready
from fleet.state.files import replace_file


class Slots:
    """Counts all concurrent work at each provider."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], threading.Semaphore] = {}

    def of(self, provider: str, most: int) -> threading.Semaphore:
        """Return what lets so many go on at a provider."""
        return self._slots.setdefault((provider, most), threading.Semaphore(most))


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
        Without it fleet does not look: the recorded looks count, and stay as they are.
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
                f"{self._memory}: not a record of livechecks (format fleet-livechecks-1): "
                f"{error.errors()[0]['msg']}; remove it to start counting again"
            ) from error

    def _write(self, looks: dict[str, Look]) -> None:
        self._memory.write(_Looks(machines=looks).model_dump_json(indent=1) + "\n")


_TIMEOUT = 3
_EVERY = 60
"""Seconds between two looks at a machine that worked: three misses are no moment's trouble."""
_AT_ONCE = 32
_OURS = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES),
    }
)
"""What stops an attempt on this computer."""


class TcpProber:
    """Connects to a port, and reads its greeting where one is asked for."""

    def answers(self, address: str, port: int, banner: str) -> bool:
        """Say whether the port takes a connection, and greets as it should."""
        expected = banner.encode()
        try:
            with socket.create_connection((address, port), timeout=_TIMEOUT) as connection:
                greeting = b""
                while len(greeting) < len(expected):
                    part = connection.recv(len(expected) - len(greeting))
                    if not part:
                        break
                    greeting += part
                return greeting == expected
        except OSError as error:
            if error.errno in _OURS or isinstance(error, socket.gaierror):
                raise SourceUnreachable(f"{address}:{port} was not tried: {error}") from error
            return False


class ReadyLooks:
    """Looks at the machines of the pools that have `ready`, and remembers failures."""

    def __init__(
        self, fleet: Fleet, memory: Callable[[str], Memory], prober: Prober | None, clock: Clock
    ) -> None:
        """`memory` returns where the looks at a provider's machines are noted.

        Without a prober it returns the recorded looks.
        """
        heirs = {new: old for old, new in heirs_of(fleet).items()}
        self._asked: dict[str, tuple[str, Ready]] = {}
        for name, pool in fleet.dynamic_pools.items():
            if pool.ready is not None:
                self._asked |= dict.fromkeys(
                    filter(None, (name, heirs.get(name))), (pool.provider, pool.ready)
                )
        self._memory = memory
        self._prober = prober
        self._clock = clock

    def __call__(self, listings: Mapping[str, Listing | Unknown]) -> dict[str, Listing | Unknown]:
        """Return the listings, each with what the ports of its machines said."""
        asked = {provider for provider, _ in self._asked.values()}
        return {
            name: self._looked(name, each) if name in asked and isinstance(each, Listing) else each
            for name, each in listings.items()
        }

    def _looked(self, provider: str, listing: Listing) -> Listing | Unknown:
        untried: list[str] = []
        livechecks = Livechecks(
            self._memory(provider),
            None if self._prober is None else partial(self._works, self._prober, untried),
            every=_EVERY,
            at_once=_AT_ONCE,
            waits=True,
        )
        own = [each for each in listing.machines if self._is_asked(provider, each)]
        try:
            looks = livechecks.looks(own, self._clock.now())
            if untried and len(untried) == len(own):
                raise SourceUnreachable(untried[0])
        except (FleetError, OSError, ValueError) as error:
            return Unknown(unknown=f"the machines of {provider} could not be tried: {error}")
        machines = tuple(_with_look(each, looks.get(each.id)) for each in listing.machines)
        return listing.altered(machines=machines)

    def _is_asked(self, provider: str, machine: Machine) -> bool:
        at, _ = self._asked.get(machine.pool, ("", None))
        is_there = machine.state is MachineState.RUNNING and machine.address is not None
        return at == provider and is_there

    def _works(self, prober: Prober, untried: list[str], machine: Machine) -> bool | None:
        _, ready = self._asked[machine.pool]
        try:
            return prober.answers(machine.address or "", ready.port, ready.banner or "")
        except SourceUnreachable as error:
            # Of one machine that says nothing of it; of all of them nothing is known.
            untried.append(str(error))
            return None


def _with_look(machine: Machine, look: Look | None) -> Machine:
    if look is None:
        return machine
    return machine.altered(misses=look.failures, was_ready=look.worked, looked_since=look.since)
