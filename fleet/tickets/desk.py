"""A queue of tickets: open tickets are demand, and machines with a ticket are busy workers.

A released machine is idle while its pool's `reuse` permits reuse, and accepts only tickets of its
sandbox. Afterwards the machine drains.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fleet.errors import StoreFailed, StoreMissing, WorkerBusy, WrongUsage
from fleet.model.facts import Demand, Ended, QueueReading, Unknown, Work, Worker
from fleet.model.tickets import (
    Given,
    Leased,
    Ticket,
    TicketState,
    expire,
    fail,
    settled,
    to_request,
)
from fleet.planner.durations import Made, by_type
from fleet.planner.turns import places_behind
from fleet.ports import Clock, Tell
from fleet.schema.model import CoprQueue, Fleet, Pool, TicketQueue
from fleet.tickets.store import DatabaseTickets
from fleet.tickets.tenancy import (
    Tenancy,
    clean,
    may_serve_again,
    to_work,
    touch,
    worker_of,
)


class StoredTicketDesk:
    """One queue of tickets. Implements the ports Queue, Registry and TicketDesk."""

    def __init__(
        self, fleet: Fleet, book: DatabaseTickets, clock: Clock, made: Made = tuple
    ) -> None:
        self._fleet = fleet
        self._book = book
        self._clock = clock
        self._made = made
        self._tickets: tuple[Ticket, ...] | None = None
        """Tickets of the last `read`, cached for `settle` because reading tickets is slow."""
        self._reading: tuple[datetime, QueueReading] | None = None
        """Last `read` and its time. A second reading for that time could serve a ticket twice."""

    def read(self, now: datetime) -> QueueReading:
        """Return the queue's waiting tickets and its workers; Unknown if the store fails."""
        if self._reading is not None and self._reading[0] == now:
            return self._reading[1]
        self._tickets = None
        try:
            tickets = self._book.tickets()
            tenancies, ended = self._book.tenancies(), self._book.ended()
            reading = read_desk(self._fleet, tickets, tenancies, now, ended)
            reading = reading.altered(behind=self._count_lost_places(tickets, now))
            reading = self._add_runs(reading, {each.package for each in tickets} - {""})
        except (StoreMissing, StoreFailed) as error:
            unknown = Unknown.of(error)
            return QueueReading(demand=unknown, workers=unknown)
        self._tickets, self._reading = tickets, (now, reading)
        return reading

    def _count_lost_places(self, tickets: Iterable[Ticket], now: datetime) -> dict[str, int]:
        """Map ticket ids to the turns lost because the owner has used machines meanwhile."""
        current = (expire(ticket, now) for ticket in tickets)
        waiting = [
            (t.id, t.owner, t.priority - t.background, t.opened_at)
            for t in current
            if t.state is TicketState.WAITING
        ]
        desk = self._fleet.queues.get(self._book.queue)
        if len({owner for _, owner, _, _ in waiting}) < 2 or not isinstance(desk, TicketQueue):  # noqa: PLR2004 - one owner alone takes no turns
            return {}
        ended = self._book.had_since(min(since for *_, since in waiting))
        behind = places_behind(waiting, ended, desk.ageing, now)
        return {str(number): places for number, places in sorted(behind.items())}

    def _add_runs(self, reading: QueueReading, packages: Collection[str]) -> QueueReading:
        """Add the durations of earlier builds of these packages to a queue's reading.

        If the fleet has a Copr queue, add the builds of all packages: they are comparable.
        """
        is_all = any(isinstance(each, CoprQueue) for each in self._fleet.queues.values())
        if not (packages or is_all) or isinstance(reading.demand, Unknown):
            return reading
        runs = [run for run in self._book.runs() if is_all or run.package in packages]
        if not runs:
            return reading
        demand = reading.demand.altered(runs=by_type(runs, self._made()))
        return reading.altered(demand=demand)

    def closed(self, since: datetime) -> tuple[Work, ...]:
        """Return the work of the tickets that clients closed since a time."""
        return tuple(map(to_work, self._book.closed(since)))

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Record ended tickets, delete old tickets and records, and return the open tickets."""
        known, self._tickets, self._reading = self._tickets, None, None
        tickets = self._book.tickets() if known is None else known
        current = tuple(each for each in tickets if settled(each, broken, now).is_open)
        for number in {each.id for each in tickets} - {each.id for each in current}:
            self._book.change(number, lambda each: settled(each, broken, now), now)
        self._book.tidy(now, besides=machines)
        return current

    def released(self) -> tuple[str, ...]:
        """Return the machines that tickets released and that were not cleaned since."""
        return self._book.released()

    def clean(self, machine: str, trouble: str) -> None:
        """Record the cleaning of a machine. With `trouble`, the machine gets no new ticket."""
        now = self._clock.now()

        def step(tenancy: Tenancy, holder: Ticket | None) -> Tenancy:
            return tenancy if holder else clean(tenancy, trouble)

        self._book.mark(machine, step, now)

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return a worker for each machine that has or had a ticket."""
        had = (*self._book.ready(), *self._book.ended())
        return workers_of(self._fleet, had, self._book.tenancies(), now)

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Assign machines to tickets that still wait; return those tickets and refusals."""
        return self._book.lease(given, now)

    def note(self, notes: Mapping[int, str]) -> None:
        """Store the reason why each ticket waits. Clear the reasons of all other tickets."""
        self._book.note(notes)

    def known_since(self) -> datetime | None:
        """Return the creation time of the store; None if unknown. No ticket in it is older."""
        return self._book.known_since()

    def keep(self, machines: Mapping[str, str], now: datetime) -> dict[str, int]:
        """Open a ticket for each machine whose ticket was lost with a store; map machine to id."""
        self._tickets = self._reading = None
        return self._book.keep(machines, now)

    def drain(self, worker: str) -> None:
        """Drain a machine, so that it gets no further ticket."""
        now = self._clock.now()

        def step(tenancy: Tenancy, holder: Ticket | None) -> Tenancy:
            # A disabled machine is deleted, so this may be another machine with the same name.
            keeps = holder is not None or (tenancy.draining and not tenancy.disabled)
            return replace(tenancy if keeps else touch(tenancy, now), draining=True)

        self._book.mark(worker, step, now)

    def resume(self, worker: str) -> None:
        """End the drain of a machine, so that it gets tickets within the limits of `reuse`."""
        now = self._clock.now()

        def step(tenancy: Tenancy, holder: Ticket | None) -> Tenancy:
            return replace(tenancy if holder else touch(tenancy, now), draining=False)

        self._book.mark(worker, step, now)

    def disable(self, worker: str) -> None:
        """Disable a machine for all further tickets; raises WorkerBusy if it has a ticket."""
        now = self._clock.now()

        def step(tenancy: Tenancy, holder: Ticket | None) -> Tenancy:
            if holder is not None:
                raise WorkerBusy(f"machine {worker} has ticket {holder.id}; it was not disabled")
            return replace(touch(tenancy, now), disabled=True)

        self._book.mark(worker, step, now)

    def revoke(self, worker: str) -> None:
        """Disable a machine that never had a ticket."""
        self.disable(worker)

    def release(self, worker: str) -> None:
        """Fail the ticket of a deleted machine, so that the ticket's client learns the reason."""
        now = self._clock.now()
        because = f"its machine {worker} is gone"
        for ticket in self._book.tickets():
            if ticket.machine == worker:
                self._book.change(ticket.id, lambda each: fail(each, because, now), now)

    def confirm(self, tell: Tell) -> None:
        """Do nothing, because no other process reverts these changes."""


def find_desk(fleet: Fleet, asked: str | None) -> tuple[str, TicketQueue]:
    """Return the ticket queue of this name (None: the only queue); raises WrongUsage."""
    desks = {name: q for name, q in fleet.queues.items() if isinstance(q, TicketQueue)}
    said = ", ".join(desks) or "none"
    if asked is None:
        if not desks:
            raise WrongUsage("fleet.yaml has no queue of kind tickets; add one under `queues`")
        if len(desks) != 1:
            raise WrongUsage(f"choose a queue with --queue: {said}")
        (asked,) = desks
    if asked in desks:
        return asked, desks[asked]
    if asked not in fleet.queues:
        raise WrongUsage(f"fleet.yaml has no queue {asked}; queues of kind tickets: {said}")
    raise WrongUsage(f"queue {asked} is of kind {fleet.queues[asked].kind}: it has no tickets")


def read_desk(
    fleet: Fleet,
    tickets: Iterable[Ticket],
    tenancies: Iterable[Tenancy],
    now: datetime,
    ended: Iterable[Ticket] = (),
) -> QueueReading:
    """Return the demand and workers of a queue, from its tickets and the records of machines.

    `ended` are tickets that have released their machine, if no later ticket had the machine.
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
    """Return a worker per machine that has or had a ticket. Waiting tickets have no effect.

    An ended ticket counts only if no later ticket had its machine.
    """
    served = [expire(ticket, now) for ticket in tickets if ticket.machine]
    holding = {ticket.machine: ticket for ticket in served if ticket.is_open}
    last = {ticket.machine: ticket for ticket in served if ticket.ended_at}
    lapsed = {ticket.machine for ticket in last.values() if ticket.ended_at == now}
    workers = []
    for tenancy in sorted(tenancies, key=lambda tenancy: tenancy.machine):
        ticket = holding.get(tenancy.machine)
        # If the ticket has just expired, the machine is released now.
        current = touch(tenancy, now) if tenancy.machine in lapsed else tenancy
        pool = fleet.pools.get(tenancy.pool)
        reuse = pool.reuse if isinstance(pool, Pool) else None
        spent = not may_serve_again(current, reuse, now)
        draining = spent if ticket is None else current.draining
        worker = worker_of(current, ticket, draining=draining)
        if (had := last.get(tenancy.machine)) and had.ended_at:
            worker = worker.altered(ended=Ended(work=to_work(had), at=had.ended_at))
        workers.append(worker)
    return tuple(workers)
