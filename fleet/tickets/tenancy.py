"""What is remembered of a machine that had tickets, and whether it may have another.

A machine that a ticket had is in that ticket's sandbox for good: only tickets of the same sandbox
may reuse it, and only as far as the pool's `reuse` goes.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from fleet.model.tickets import ALONE, Given, Ticket
from fleet.schema.pools import Reuse
from fleet.schema.units import write_duration


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What is remembered of a machine that had tickets, or that is to get no more."""

    machine: str
    since: datetime
    """When it was last given out, released, drained or switched off: never before it was made."""
    pool: str = ""
    sandbox: str = ""
    uses: int = 0
    """Tickets it had, the present one among them."""
    first_used: datetime | None = None
    draining: bool = False
    disabled: bool = False
    dirty: bool = False
    """It had a ticket, and was not cleaned since."""


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
        raise ValueError(f"machine {tenancy.machine} gets no tickets any more")
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
    """Return what is remembered of a machine once it was cleaned; in trouble it gets no ticket."""
    return replace(tenancy, dirty=bool(trouble), draining=tenancy.draining or bool(trouble))


def reuse_denied_reason(tenancy: Tenancy, reuse: Reuse | None, now: datetime) -> str:
    """Return why a machine without a ticket gets no other; empty where it may get one.

    How long it is kept for that, a plan says: its hour may be paid for.
    """
    if tenancy.disabled or tenancy.draining:
        return "it is switched off" if tenancy.disabled else "it is drained"
    if not tenancy.uses:
        return ""
    if reuse is None:
        return "its pool has no `reuse`: a machine is for one ticket"
    if tenancy.sandbox.startswith(ALONE):
        return "its ticket named no sandbox, so that no other may have it"
    return _reached_limit(tenancy, reuse, now)


def _reached_limit(tenancy: Tenancy, reuse: Reuse, now: datetime) -> str:
    """Return which figure of `reuse` a machine has reached; empty where it has none."""
    if reuse.max_uses is not None and tenancy.uses >= reuse.max_uses:
        return f"it had {tenancy.uses} tickets, reuse.max_uses is {reuse.max_uses}"
    age = _seconds(tenancy.first_used, now)
    if reuse.max_age is not None and age >= reuse.max_age:
        since, most = write_duration(age), write_duration(reuse.max_age)
        return f"it had its first ticket {since} ago, reuse.max_age is {most}"
    return ""


def _seconds(since: datetime | None, now: datetime) -> int:
    return int((now - since) / timedelta(seconds=1)) if since else 0
