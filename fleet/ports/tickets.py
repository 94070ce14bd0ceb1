"""This module names what giving out machines needs from the world, as a protocol.

It has a written fake and a contract suite, as the protocols of fleet.ports have.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from fleet.facts import Machine, QueueReading, Worker
from fleet.tickets import Given, Leased, Ticket


class Desk(Protocol):
    """Where tickets of one queue are kept; what it gives out it gives out under the lock."""

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Write down which tickets have ended by now, and return those that are open then.

        What clients did since `read` is seen the next time. Machines that are not among these,
        which are all that anybody knows, are forgotten; None: which there are is not known.
        Tickets whose machine is a broken one fail.
        """

    def released(self) -> tuple[str, ...]:
        """Return the machines that tickets gave back, and that were not cleaned since."""

    def clean(self, machine: str, trouble: str) -> None:
        """Note that a machine was cleaned; in trouble it gets no other ticket."""

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give machines to tickets that still wait, and return which got theirs.

        A machine that must not have its ticket is left out, and it is said why.
        """

    def note(self, notes: Mapping[int, str]) -> None:
        """Write down what holds back each ticket that waits; nothing for those left out."""

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return who has a ticket or had one."""

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works."""


class Cleaned(NamedTuple):
    """How it went to clean a machine; no trouble is the empty text."""

    trouble: str = ""
    begun: bool = True


class Lender(Protocol):
    """A provider that looks at its machines, cleans them between tickets, and tells of them."""

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed, as of the last listing."""

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine that a ticket gave back; return how that went.

        What could not be begun is to be tried again: until then the machine gets no ticket.
        """

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return what else is known of a machine for its ticket's answer: `port`, `data`."""
