"""This module names what giving out machines needs from the world, as a protocol.

It has a written fake and a contract suite, as the protocols of fleet.ports have.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from fleet.facts import QueueReading, Worker
from fleet.tickets import Given, Leased, Ticket


class Desk(Protocol):
    """Where tickets of one queue are kept; what it gives out it gives out under the lock."""

    def settle(self, now: datetime, machines: Collection[str] | None) -> tuple[Ticket, ...]:
        """Write down which tickets have expired, and return those that are open then.

        Machines that are not among these, which are all that anybody knows, are forgotten; None:
        which there are is not known.
        """

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give machines to tickets that still wait, and return which got theirs.

        A machine that must not have its ticket is left out, and it is said why.
        """

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return who has a ticket or had one."""

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works."""
