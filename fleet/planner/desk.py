"""This module tells a queue of tickets as every queue is told: what waits, and who works.

A machine that has a ticket is a busy worker. One that was released is idle while its pool's
`reuse` lasts, and requires its sandbox of whatever is to run there; after that it drains.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime

from fleet.model.facts import (
    Demand,
    Ended,
    Listing,
    Machine,
    QueueReading,
    Unknown,
    Work,
    Worker,
    WorkerState,
    World,
)
from fleet.model.tickets import (
    SANDBOX,
    Tenancy,
    Ticket,
    TicketState,
    expire,
    is_older,
    reuse_denied_reason,
    to_request,
    touch,
)
from fleet.schema.model import Fleet, Pool, Reuse, TicketQueue
from fleet.tagrules.names import names_of


def read_desk(
    fleet: Fleet,
    tickets: Iterable[Ticket],
    tenancies: Iterable[Tenancy],
    now: datetime,
    ended: Iterable[Ticket] = (),
) -> QueueReading:
    """Return the demand and the workers of a queue, from its open tickets and all machines.

    `ended` are the tickets that gave machines back which no ticket has had since.
    """
    current = [expire(ticket, now) for ticket in sorted(tickets, key=lambda ticket: ticket.id)]
    waiting = tuple(to_request(t) for t in current if t.state is TicketState.WAITING)
    return QueueReading(
        demand=Demand(read_at=now, requests=waiting),
        workers=workers_of(fleet, (*current, *ended), tenancies, now),
    )


def workers_of(
    fleet: Fleet, tickets: Iterable[Ticket], tenancies: Iterable[Tenancy], now: datetime
) -> tuple[Worker, ...]:
    """Return who has a ticket or had one; tickets that wait do not matter.

    Of tickets that have ended, those matter that gave a machine back which nobody has had since.
    """
    had = [expire(ticket, now) for ticket in tickets if ticket.machine]
    holding = {ticket.machine: ticket for ticket in had if ticket.is_open}
    last = {ticket.machine: ticket for ticket in had if ticket.ended_at}
    lapsed = {ticket.machine for ticket in last.values() if ticket.ended_at == now}
    workers = []
    for tenancy in sorted(tenancies, key=lambda tenancy: tenancy.machine):
        ticket = holding.get(tenancy.machine)
        # Where its ticket has just expired it is released now, and looked at from now on.
        current = touch(tenancy, now) if tenancy.machine in lapsed else tenancy
        spent = bool(reuse_denied_reason(current, _reuse(fleet, current), now))
        draining = spent if ticket is None else current.draining
        worker = _worker(current, ticket, draining=draining)
        ended = _ended(last.get(tenancy.machine))
        workers.append(worker.model_copy(update={"ended": ended}) if ended else worker)
    return tuple(workers)


def _ended(ticket: Ticket | None) -> Ended | None:
    if ticket is None or ticket.ended_at is None:
        return None
    return Ended(work=to_work(ticket), at=ticket.ended_at)


def to_work(ticket: Ticket, since: datetime | None = None) -> Work:
    """Return what runs, or ran, on the machine of a ticket, and since when if that is known."""
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
        sandbox=ticket.place,
    )


def desks_of(fleet: Fleet, queues: Iterable[str]) -> tuple[str, ...]:
    """Return the queues of tickets among these."""
    return tuple(q for q in queues if isinstance(fleet.queues.get(q), TicketQueue))


def attend(
    world: World,
    desks: Collection[str],
    listing: Listing,
    is_up: Callable[[Machine], bool],
) -> dict[str, tuple[Worker, ...]] | Unknown:
    """Return the workers of a provider's machines as the desks that give them out know them.

    What is up, and registers nowhere else, can be given out; Unknown where a desk is.
    """
    told: dict[str, tuple[str, Worker]] = {}
    for desk in desks:
        workers = world.queues[desk].workers
        if isinstance(workers, Unknown):
            return Unknown(unknown=f"workers of queue {desk} are unknown: {workers.unknown}")
        for worker in workers or ():
            known = told.get(worker.name)
            if known is None or worker.state is WorkerState.BUSY:
                told[worker.name] = (desk, worker)
    created = {machine.name: machine.created_at for machine in listing.machines}
    found: dict[str, list[Worker]] = {desk: [] for desk in desks}
    first = next(iter(found))
    for worker in _running(listing, is_up):
        desk, own = told.pop(worker.name, (first, None))
        is_new = own is None or _is_of_older(own, created.get(worker.name))
        found[desk].append(worker if own is None or is_new else _joined(worker, own))
    for desk, own in told.values():
        # What is told of a machine that is gone says nothing of one that starts under its name.
        if not _is_of_older(own, created.get(own.name)):
            found[desk].append(own)
    return {desk: tuple(workers) for desk, workers in found.items()}


def _is_of_older(own: Worker, created_at: datetime | None) -> bool:
    """Say whether what a desk tells is of a machine that is gone, whose name another carries."""
    if own.state is WorkerState.BUSY or own.since is None or created_at is None:
        return False
    return is_older(own.since, created_at)


def _running(listing: Listing, is_up: Callable[[Machine], bool]) -> Iterator[Worker]:
    if listing.workers is not None:
        yield from listing.workers
        return
    for machine in listing.machines:
        if is_up(machine):
            yield Worker(
                name=machine.name,
                machine=machine.name,
                pool=machine.pool,
                state=WorkerState.IDLE,
                since=machine.created_at,
            )


def _joined(seen: Worker, told: Worker) -> Worker:
    """Return a worker as its machine and its desk say, the more active of the two."""
    if seen.state is not WorkerState.IDLE:
        return seen
    said: Mapping[str, object] = {
        "state": told.state,
        "running": told.running,
        "work": told.work,
        "ended": told.ended,
        "uses": told.uses,
        "since": told.since,
        "draining": seen.draining or told.draining,
        "requires": tuple(sorted({*seen.requires, *told.requires})),
    }
    return seen.model_copy(update=dict(said))


def _reuse(fleet: Fleet, tenancy: Tenancy) -> Reuse | None:
    pool = fleet.pools.get(tenancy.pool)
    return pool.reuse if isinstance(pool, Pool) else None


def _worker(tenancy: Tenancy, ticket: Ticket | None, *, draining: bool) -> Worker:
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
