"""What is remembered of a machine that had tickets, and whether it may have another.

A machine that a ticket had is in that ticket's sandbox for good: only tickets of the same sandbox
may reuse it, and only as far as the pool's `reuse` goes.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from fleet.model.tickets import ALONE, Given, Ticket
from fleet.schema.pools import Reuse


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What is remembered of a machine that had tickets, or that is to get no more."""

    machine: str
    since: datetime
    """When it was last given out, released, drained or disabled; never before its creation."""
    pool: str = ""
    sandbox: str = ""
    uses: int = 0
    """Tickets it had, the present one among them."""
    first_used: datetime | None = None
    draining: bool = False
    disabled: bool = False
    dirty: bool = False
    """It had a ticket and was not cleaned since."""


def admit(
    given: Given, ticket: Ticket, known: Tenancy | None, holder: int | None, now: datetime
) -> Tenancy:
    """Return what is remembered of a machine once a ticket has it; nothing of an older one.

    Raises ValueError where another ticket holds it, or it must not have this one.
    """
    if holder is not None:
        raise ValueError(f"machine {given.machine} has ticket {holder}")
    if known is None or known.since < given.created_at:
        # The provider's clock may be ahead of this one.
        known = Tenancy(given.machine, max(now, given.created_at))
    return replace(occupy(known, ticket, now), pool=given.pool)


def touch(tenancy: Tenancy, now: datetime) -> Tenancy:
    """Return what is remembered of a machine to which something was done now."""
    return replace(tenancy, since=max(now, tenancy.since))


def occupy(tenancy: Tenancy, ticket: Ticket, now: datetime) -> Tenancy:
    """Return what is remembered of a machine once a ticket has it.

    Raises ValueError where it is in another sandbox, or gets no tickets any more.
    """
    if tenancy.draining or tenancy.disabled:
        raise ValueError(f"machine {tenancy.machine} takes no more tickets")
    if tenancy.uses and tenancy.sandbox != ticket.place:
        raise ValueError(f"machine {tenancy.machine} is in sandbox {tenancy.sandbox.strip()}")
    return replace(
        touch(tenancy, now),
        sandbox=ticket.place,
        uses=tenancy.uses + 1,
        first_used=tenancy.first_used or now,
        dirty=True,
    )


def clean(tenancy: Tenancy, trouble: str) -> Tenancy:
    """Return what is remembered of a machine once it was cleaned; it drains after a failure."""
    return replace(tenancy, dirty=bool(trouble), draining=tenancy.draining or bool(trouble))


def may_serve_again(tenancy: Tenancy, reuse: Reuse | None, now: datetime) -> bool:
    """Say whether a machine without a ticket may have another one.

    The plan decides how long it is kept for that: its hour may be paid for.
    """
    if tenancy.disabled or tenancy.draining:
        return False
    if not tenancy.uses:
        return True
    if reuse is None or tenancy.sandbox.startswith(ALONE):
        return False
    if reuse.max_uses is not None and tenancy.uses >= reuse.max_uses:
        return False
    age = int((now - tenancy.first_used).total_seconds()) if tenancy.first_used else 0
    return reuse.max_age is None or age < reuse.max_age
