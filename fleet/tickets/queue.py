"""This module is a queue of tickets: what is open is demand, and who has a ticket works.

It is also where the workers of its machines are told to stop: they get no ticket any more.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fleet.errors import StoreFailed, StoreMissing, WorkerBusy
from fleet.model.facts import QueueReading, Unknown, Work, Worker
from fleet.model.tickets import Given, Leased, Tenancy, Ticket, clean, fail, settled, touch
from fleet.planner.desk import read_desk, to_work, workers_of
from fleet.planner.durations import Made, by_type
from fleet.ports import Clock
from fleet.schema.model import CoprQueue, Fleet
from fleet.tickets.tables import DatabaseTickets


class StoredTicketDesk:
    """One queue of tickets: Queue, Registry and TicketDesk."""

    def __init__(
        self, fleet: Fleet, book: DatabaseTickets, clock: Clock, made: Made = tuple
    ) -> None:
        self._fleet = fleet
        self._book = book
        self._clock = clock
        self._made = made
        self._told: tuple[Ticket, ...] | None = None
        """What `read` found, until `settle` has seen to it: reading it again takes as long."""
        self._reading: tuple[datetime, QueueReading] | None = None
        """What it said: a ticket that only one of two readers of a moment sees is served twice."""

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works; Unknown where the store cannot tell."""
        if self._reading is not None and self._reading[0] == now:
            return self._reading[1]
        self._told = None
        try:
            tickets = self._book.tickets()
            tenancies, ended = self._book.tenancies(), self._book.ended()
            reading = read_desk(self._fleet, tickets, tenancies, now, ended)
            reading = self._with_runs(reading, {each.package for each in tickets} - {""})
        except (StoreMissing, StoreFailed) as error:
            unknown = Unknown(unknown=str(error))
            return QueueReading(demand=unknown, workers=unknown)
        self._told, self._reading = tickets, (now, reading)
        return reading

    def _with_runs(self, reading: QueueReading, packages: Collection[str]) -> QueueReading:
        """Return a reading with how long earlier builds of these packages took.

        Beside a Copr, those of any package: its own builds are alike.
        """
        is_all = any(isinstance(each, CoprQueue) for each in self._fleet.queues.values())
        if not (packages or is_all) or isinstance(reading.demand, Unknown):
            return reading
        runs = [run for run in self._book.runs() if is_all or run.package in packages]
        if not runs:
            return reading
        demand = reading.demand.model_copy(update={"runs": by_type(runs, self._made())})
        return reading.model_copy(update={"demand": demand})

    def closed(self, since: datetime) -> tuple[Work, ...]:
        """Return what ran on machines that clients have given back since then."""
        return tuple(map(to_work, self._book.closed(since)))

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Write down which tickets have ended, forget what is long gone, return what is open."""
        told, self._told, self._reading = self._told, None, None
        tickets = self._book.tickets() if told is None else told
        current = tuple(each for each in tickets if settled(each, broken, now).is_open)
        for number in {each.id for each in tickets} - {each.id for each in current}:
            self._book.change(number, lambda each: settled(each, broken, now), now)
        self._book.tidy(now, besides=machines)
        return current

    def released(self) -> tuple[str, ...]:
        """Return the machines that tickets gave back, and that were not cleaned since."""
        return self._book.released()

    def clean(self, machine: str, trouble: str) -> None:
        """Note that a machine was cleaned; in trouble it gets no other ticket."""
        now = self._clock.now()

        def step(tenancy: Tenancy, holder: Ticket | None) -> Tenancy:
            return tenancy if holder else clean(tenancy, trouble)

        self._book.mark(machine, step, now)

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return who has a ticket or had one."""
        had = (*self._book.ready(), *self._book.ended())
        return workers_of(self._fleet, had, self._book.tenancies(), now)

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give machines to tickets that still wait, and return which got theirs."""
        return self._book.lease(given, now)

    def note(self, notes: Mapping[int, str]) -> None:
        """Write down what holds back each ticket that waits; nothing for those left out."""
        self._book.note(notes)

    def drain(self, worker: str) -> None:
        """Give a machine no other ticket."""
        now = self._clock.now()

        def step(tenancy: Tenancy, _: Ticket | None) -> Tenancy:
            # One that was switched off is over: it may be another machine of its name that drains.
            drains = tenancy.draining and not tenancy.disabled
            return replace(tenancy if drains else touch(tenancy, now), draining=True)

        self._book.mark(worker, step, now)

    def disable(self, worker: str) -> None:
        """Give a machine no ticket for good; refused while it has one."""
        now = self._clock.now()

        def step(tenancy: Tenancy, holder: Ticket | None) -> Tenancy:
            if holder is not None:
                raise WorkerBusy(f"machine {worker} has ticket {holder.id}; it was not disabled")
            return replace(touch(tenancy, now), disabled=True)

        self._book.mark(worker, step, now)

    def revoke(self, worker: str) -> None:
        """Give a machine that never had a ticket none, even once it is up."""
        self.disable(worker)

    def release(self, worker: str) -> None:
        """Fail the ticket of a machine that is gone, so that its client is told."""
        now = self._clock.now()
        because = f"its machine {worker} is gone"
        for ticket in self._book.tickets():
            if ticket.machine == worker:
                self._book.change(ticket.id, lambda each: fail(each, because, now), now)

    def pause(self) -> float:
        """Return how long `confirm` waits."""
        return 0.0

    def confirm(self) -> None:
        """See that what was told stands: here nothing undoes it."""
