"""This module tries the ports that fleet.yaml's `ready` names, at the machines that run.

A listing says then how often in a row each did not answer; what that means, the core decides.
"""

import errno
import socket
from collections.abc import Callable, Mapping
from functools import partial

from fleet.census.renames import heirs_of
from fleet.errors import FleetError, SourceUnreachable
from fleet.facts import Listing, Machine, MachineState, Unknown
from fleet.ports import Clock, Prober
from fleet.providers.hook_livechecks import Livechecks, Look, Memory
from fleet.schema.model import Fleet, Pool, Ready

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
    """Looks at the machines of the pools that have `ready`, and remembers how often in vain."""

    def __init__(
        self, fleet: Fleet, memory: Callable[[str], Memory], prober: Prober | None, clock: Clock
    ) -> None:
        """`memory` returns where the looks at a provider's machines are noted.

        Without a prober nobody looks: what was noted is told.
        """
        heirs = {new: old for old, new in heirs_of(fleet).items()}
        self._asked: dict[str, tuple[str, Ready]] = {}
        for name, pool in fleet.pools.items():
            if isinstance(pool, Pool) and pool.ready is not None:
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
        machines = tuple(_told(each, looks.get(each.id)) for each in listing.machines)
        return listing.model_copy(update={"machines": machines})

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


def _told(machine: Machine, look: Look | None) -> Machine:
    if look is None:
        return machine
    return machine.model_copy(
        update={"misses": look.failures, "was_ready": look.worked, "looked_since": look.since}
    )
