"""Readiness of machines: run livechecks, probe ports, and store the results.

The number of concurrent commands per provider is limited. A machine is checked again only after an
interval, so that frequent plans do not amplify a short failure. If the results are lost, counting
starts again.

A listing has the consecutive failures of each machine; the core decides about the machine.
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
    """Limits of concurrent work, per provider."""

    def __init__(self) -> None:
        self._slots: dict[tuple[str, int], threading.Semaphore] = {}

    def of(self, provider: str, most: int) -> threading.Semaphore:
        """Return the semaphore of a provider that admits `most` threads."""
        return self._slots.setdefault((provider, most), threading.Semaphore(most))


class Look(Value):
    """Result of the latest livecheck of one machine."""

    at: Moment
    since: Moment | None = Field(None, description="Time of the first recorded check.")
    failures: int = Field(ge=0, description="Consecutive failed checks, including this one.")
    worked: bool = Field(False, description="Whether a check has succeeded.")


class _Looks(Value):
    format: Literal["fleet-livechecks-1"] = "fleet-livechecks-1"
    machines: dict[str, Look] = Field(default_factory=dict)


class CheckStorage(Protocol):
    """Storage of check results. Methods raise OSError, or FleetError if this is the store."""

    def read(self) -> str | None:
        """Return the stored text; None if no text is stored."""

    def write(self, text: str) -> None:
        """Replace the stored text."""


class FileMemory:
    """Storage of check results in a file on this computer."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def read(self) -> str | None:
        """Return the content of the file; None if the file is missing."""
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None

    def write(self, text: str) -> None:
        """Replace the content of the file atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, text.encode(), mode=0o600)


class Livechecks:
    """The livechecks of one provider's machines, with stored results."""

    def __init__(
        self,
        memory: CheckStorage,
        works: Callable[[Machine], bool | None] | None,
        *,
        every: int,
        at_once: int,
        waits: bool = False,
    ) -> None:
        """`works` checks one machine. At most `at_once` threads call it concurrently.

        If `works` returns None, the check was impossible and the last result remains. If `works`
        is None, no check runs and the recorded results are returned. With `waits`, a machine that
        has never worked is checked each time.
        """
        self._memory = memory
        self._works = works
        self._at_once = at_once
        self._every = timedelta(seconds=every)
        self._waits = waits

    def failures(self, machines: Sequence[Machine], now: datetime) -> Mapping[str, int]:
        """Map machine ids to numbers of consecutive failed livechecks.

        Raises OSError or ValueError if the results cannot be stored.
        """
        return {key: look.failures for key, look in self.looks(machines, now).items()}

    def looks(self, machines: Sequence[Machine], now: datetime) -> Mapping[str, Look]:
        """Map ids of running machines to their latest result; raises the errors of `failures`."""
        before = self._read()
        running = [each for each in machines if each.state is MachineState.RUNNING]
        known = {each.id: before[each.id] for each in running if each.id in before}
        # `abs`: a clock that was set back must not delay livechecks.
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
            self._memory.write(_Looks(machines=known).model_dump_json(indent=1) + "\n")
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


_TIMEOUT_SECONDS = 3
_INTERVAL_SECONDS = 60
"""Seconds between checks of a working machine. A short outage then is at most one failure."""
_MAX_CONCURRENT = 32
_LOCAL_ERRORS = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.EAFNOSUPPORT, errno.EPERM, errno.EACCES),
    }
)
"""Errors of this computer, which prove no failure of a machine."""


class TcpProber:
    """Prober that connects to a TCP port and compares the greeting, if one is expected."""

    def answers(self, address: str, port: int, banner: str) -> bool:
        """Return whether a port accepts a connection and sends the expected greeting, if any."""
        expected = banner.encode()
        try:
            with socket.create_connection((address, port), timeout=_TIMEOUT_SECONDS) as connection:
                greeting = b""
                while len(greeting) < len(expected):
                    part = connection.recv(len(expected) - len(greeting))
                    if not part:
                        break
                    greeting += part
                return greeting == expected
        except OSError as error:
            if error.errno in _LOCAL_ERRORS or isinstance(error, socket.gaierror):
                raise SourceUnreachable(f"{address}:{port} was not tried: {error}") from error
            return False


class ReadyLooks:
    """Prober of the machines in pools with a `ready` setting; it counts failures."""

    def __init__(
        self,
        fleet: Fleet,
        memory: Callable[[str], CheckStorage],
        prober: Prober | None,
        clock: Clock,
    ) -> None:
        """`memory` returns the storage of results of a provider.

        If `prober` is None, the recorded results are used.
        """
        heirs = {new: old for old, new in heirs_of(fleet).items()}
        self._probed_pools: dict[str, tuple[str, Ready]] = {}
        for name, pool in fleet.dynamic_pools.items():
            if pool.ready is not None:
                self._probed_pools |= dict.fromkeys(
                    filter(None, (name, heirs.get(name))), (pool.provider, pool.ready)
                )
        self._memory = memory
        self._prober = prober
        self._clock = clock

    def __call__(self, listings: Mapping[str, Listing | Unknown]) -> dict[str, Listing | Unknown]:
        """Return the listings with probe results; Unknown if no machine could be probed."""
        asked = {provider for provider, _ in self._probed_pools.values()}
        return {
            name: self._probe_listing(name, each)
            if name in asked and isinstance(each, Listing)
            else each
            for name, each in listings.items()
        }

    def _probe_listing(self, provider: str, listing: Listing) -> Listing | Unknown:
        untried: list[str] = []
        livechecks = Livechecks(
            self._memory(provider),
            None if self._prober is None else partial(self._works, self._prober, untried),
            every=_INTERVAL_SECONDS,
            at_once=_MAX_CONCURRENT,
            waits=True,
        )
        own = [
            each
            for each in listing.machines
            if each.state is MachineState.RUNNING and each.address is not None
            if self._probed_pools.get(each.pool, ("", None))[0] == provider
        ]
        try:
            looks = livechecks.looks(own, self._clock.now())
            if untried and len(untried) == len(own):
                raise SourceUnreachable(untried[0])
        except (FleetError, OSError, ValueError) as error:
            return Unknown(unknown=f"the machines of {provider} could not be tried: {error}")
        machines = tuple(
            each.altered(misses=look.failures, was_ready=look.worked, looked_since=look.since)
            if (look := looks.get(each.id))
            else each
            for each in listing.machines
        )
        return listing.altered(machines=machines)

    def _works(self, prober: Prober, untried: list[str], machine: Machine) -> bool | None:
        _, ready = self._probed_pools[machine.pool]
        try:
            return prober.answers(machine.address or "", ready.port, ready.banner or "")
        except SourceUnreachable as error:
            # A machine that could not be probed keeps its last result; if no machine could be
            # probed, the listing is Unknown.
            untried.append(str(error))
            return None
