"""Keep the record of each machine that tickets use.

A machine stays in the sandbox of its first ticket: only tickets of that sandbox may reuse the
machine, within the limits of the pool's `reuse`.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from fleet.model.facts import Work, Worker, WorkerState
from fleet.model.tickets import ALONE, SANDBOX, Given, Ticket, to_request
from fleet.schema.pools import Reuse
from fleet.tagrules.names import names_of


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The record of a machine that has or had tickets, or that gets no further ticket."""

    machine: str
    since: datetime
    """Time of the last change: the machine was assigned, released, drained or disabled."""
    pool: str = ""
    sandbox: str = ""
    uses: int = 0
    """Number of tickets that have used the machine, including the current ticket."""
    first_used: datetime | None = None
    draining: bool = False
    disabled: bool = False
    dirty: bool = False
    """Whether a ticket has used the machine since the last cleaning."""


def keep(known: Tenancy, pool: str, ticket: Ticket, now: datetime) -> Tenancy:
    """Update the record of a machine that a ticket of a lost store may still use."""
    return replace(
        known,
        pool=pool,
        uses=1,
        sandbox=ticket.effective_sandbox,
        first_used=now,
        dirty=True,
    )


def worker_of(tenancy: Tenancy, ticket: Ticket | None, *, draining: bool) -> Worker:
    """Return the worker that represents a machine: busy if the machine has an open ticket."""
    return Worker(
        name=tenancy.machine,
        machine=tenancy.machine,
        pool=tenancy.pool or None,
        state=WorkerState.BUSY
        if ticket
        else WorkerState.DISABLED
        if tenancy.disabled
        else WorkerState.IDLE,
        draining=draining,
        running=str(ticket.id) if ticket else None,
        work=to_work(ticket, tenancy.since) if ticket else None,
        uses=tenancy.uses,
        requires=(SANDBOX + tenancy.sandbox,) if tenancy.uses else (),
        since=tenancy.since,
    )


def to_work(ticket: Ticket, since: datetime | None = None) -> Work:
    """Return the work of a ticket on its machine. `since` is the start time, None if unknown."""
    request = to_request(ticket)
    return Work(
        task=request.task,
        required=ticket.counting,
        started_at=since,
        requester=ticket.submitter or None,
        owner=ticket.owner or None,
        package=request.package,
        names=names_of(request),
        team=ticket.team or None,
        sandbox=ticket.effective_sandbox,
    )


def admit(
    given: Given, ticket: Ticket, known: Tenancy | None, holder: int | None, now: datetime
) -> Tenancy:
    """Return the record of a machine after a ticket got it. Ignore an older machine's record.

    Raises ValueError if another ticket has the machine, or this ticket must not get it.
    """
    if holder is not None:
        raise ValueError(f"machine {given.machine} has ticket {holder}")
    created = given.created_at
    if known is None or (created is not None and known.since < created):
        # The provider's clock may be ahead of this computer's clock.
        known = Tenancy(given.machine, max(now, created or now))
    return replace(occupy(known, ticket, now), pool=given.pool)


def touch(tenancy: Tenancy, now: datetime) -> Tenancy:
    """Return a machine's record with the time of this change, which never moves backwards."""
    return replace(tenancy, since=max(now, tenancy.since))


def occupy(tenancy: Tenancy, ticket: Ticket, now: datetime) -> Tenancy:
    """Return the record of a machine after a ticket got the machine.

    Raises ValueError if the machine is in another sandbox, or gets no further tickets.
    """
    if tenancy.draining or tenancy.disabled:
        raise ValueError(f"machine {tenancy.machine} takes no more tickets")
    if tenancy.uses and tenancy.sandbox != ticket.effective_sandbox:
        raise ValueError(f"machine {tenancy.machine} is in sandbox {tenancy.sandbox.strip()}")
    return replace(
        touch(tenancy, now),
        sandbox=ticket.effective_sandbox,
        uses=tenancy.uses + 1,
        first_used=tenancy.first_used or now,
        dirty=True,
    )


def clean(tenancy: Tenancy, trouble: str) -> Tenancy:
    """Return a machine's record after cleaning. With `trouble`, the machine gets no new ticket."""
    return replace(tenancy, dirty=bool(trouble), draining=tenancy.draining or bool(trouble))


def may_serve_again(tenancy: Tenancy, reuse: Reuse | None, now: datetime) -> bool:
    """Return whether a released machine may get another ticket, by the limits of `reuse`.

    This does not decide how long an unused machine is kept: the plan decides that.
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
