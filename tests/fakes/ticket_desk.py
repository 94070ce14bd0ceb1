"""A written fake of the port `TicketDesk`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from fleet.model.facts import QueueReading, Worker
from fleet.model.tickets import Given, Leased, Ticket, TicketState, settled, unknown_ticket
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk, workers_of
from fleet.tickets.tenancy import Tenancy, admit, clean, touch


class FakeTicketDesk:
    """Tickets and machines in dictionaries; clients open and change tickets as they like."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.all: dict[int, Ticket] = {}
        self.known: dict[str, Tenancy] = {}
        self.since: datetime | None = None

    def open(self, ticket: Ticket) -> int:
        """Open a ticket and return its id."""
        number = len(self.all) + 1
        self.all[number] = ticket._replace(id=number)
        return number

    def change(self, number: int, step: Callable[[Ticket], Ticket], now: datetime) -> None:
        """Take a step with a ticket; the machine of one that ends is released."""
        before, self.all[number] = self.all[number], step(self.all[number])
        if before.is_open and before.machine and not self.all[number].is_open:
            self.known[before.machine] = touch(self.known[before.machine], now)

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the tickets that are open."""
        return tuple(ticket for ticket in self.all.values() if ticket.is_open)

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Let tickets end, forget machines that are gone, and return what is open."""
        for ticket in self.tickets():
            self.change(ticket.id, lambda each: settled(each, broken, now), now)
        held = {ticket.machine for ticket in self.tickets()}
        if machines is not None:
            self.known = {k: t for k, t in self.known.items() if k in machines or k in held}
        return self.tickets()

    def released(self) -> tuple[str, ...]:
        """Return the machines that were given back, and not cleaned since."""
        held = {ticket.machine for ticket in self.tickets()}
        return tuple(sorted(k for k, t in self.known.items() if t.dirty and k not in held))

    def clean(self, machine: str, trouble: str) -> None:
        """Note that a machine was cleaned; in trouble it gets no other ticket."""
        self.known[machine] = clean(self.known[machine], trouble)

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give machines to tickets that still wait."""
        got = []
        refused = {}
        for each in given:
            ticket = self.all[each.ticket]
            if ticket.state is not TicketState.WAITING:
                continue
            holder = next((t.id for t in self.tickets() if t.machine == each.machine), None)
            try:
                tenancy = admit(each, ticket, self.known.get(each.machine), holder, now)
            except ValueError as error:
                refused[each.ticket] = str(error)
                continue
            self.known[each.machine] = tenancy
            self.all[each.ticket] = ticket._replace(
                state=TicketState.READY,
                machine=each.machine,
                answer=each.answer,
                granted=each.tags,
                note=each.note,
            )
            got.append(each.ticket)
        return Leased(tuple(got), refused)

    def known_since(self) -> datetime | None:
        """Return from when on tickets are remembered."""
        return self.since

    def keep(self, machines: Mapping[str, str], now: datetime) -> dict[str, int]:
        """Open a ticket for each machine that has none."""
        held = {ticket.machine for ticket in self.tickets()}
        kept = {}
        for machine in sorted(machines.keys() - held):
            number = kept[machine] = self.open(unknown_ticket(machine, now))
            self.known[machine] = replace(
                self.known.get(machine, Tenancy(machine, now)),
                pool=machines[machine],
                uses=1,
                sandbox=self.all[number].effective_sandbox,
            )
        return kept

    def note(self, notes: Mapping[int, str]) -> None:
        """Write down what holds back each ticket that waits."""
        for ticket in self.tickets():
            if ticket.state is TicketState.WAITING:
                self.all[ticket.id] = ticket._replace(note=notes.get(ticket.id, ""))

    def workers(self, now: datetime) -> tuple[Worker, ...]:
        """Return who has a ticket or had one."""
        return workers_of(self.fleet, (*self.tickets(), *self._ended()), self.known.values(), now)

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works."""
        return read_desk(self.fleet, self.tickets(), self.known.values(), now, self._ended())

    def _ended(self) -> tuple[Ticket, ...]:
        """Return the tickets to whose machines nothing was done since they ended."""
        since = {name: tenancy.since for name, tenancy in self.known.items()}
        ended = [ticket for ticket in self.all.values() if ticket.machine and ticket.ended_at]
        return tuple(ticket for ticket in ended if since.get(ticket.machine) == ticket.ended_at)
