"""This module is a farm whose machines are given out by tickets."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from fleet.errors import StoreFailed, WorkerBusy
from fleet.facts import QueueReading, Unknown, World
from fleet.operate.handing import hand_out_all
from fleet.operate.observe import Sources
from fleet.plan import Plan
from fleet.schema.model import Fleet
from fleet.tickets import Given, Leased, Tenancy, Ticket, fail, touch
from tests.fakes_desk import FakeDesk
from tests.laws.machine import CLOUDS, Cloud, Farm
from tests.ticketing import a_ticket


class FarmDesk(FakeDesk):
    """The written desk, which is the registry of its machines too, and notes what it gave."""

    def __init__(self, farm: "TicketFarm", fleet: Fleet) -> None:
        super().__init__(fleet)
        self._farm = farm
        self.leases: list[tuple[int, str]] = []
        self.places: dict[tuple[str, datetime], set[str]] = {}
        """A machine, by its name and when it was made, to the sandboxes it served."""

    def settle(self, now: datetime, machines: object) -> tuple[Ticket, ...]:
        """Let tickets expire; nothing where the store cannot be reached."""
        if "tickets" in self._farm.blind:
            raise StoreFailed("the store does not answer")
        known = machines if isinstance(machines, frozenset) else None
        return super().settle(now, known)

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give out machines, and note them."""
        got = super().lease(given, now)
        for each in given:
            if each.ticket in got.tickets:
                made = self._farm.made[each.machine]
                key = (each.machine, made.created_at)
                self.places.setdefault(key, set()).add(self.all[each.ticket].place)
                self.leases.append((each.ticket, each.machine))
        return got

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works."""
        if "tickets" in self._farm.blind:
            unknown = Unknown(unknown="the store does not answer")
            return QueueReading(demand=unknown, workers=unknown)
        return super().read(now)

    def drain(self, worker: str) -> None:
        """Give a machine no other ticket."""
        self._farm.burn()
        self.known[worker] = replace(touch(self._tenancy(worker), self._farm.now), draining=True)

    def disable(self, worker: str) -> None:
        """Give a machine no ticket for good."""
        self._farm.burn()
        if any(ticket.machine == worker for ticket in self.tickets()):
            raise WorkerBusy(f"{worker} has a ticket")
        self.known[worker] = replace(touch(self._tenancy(worker), self._farm.now), disabled=True)

    def revoke(self, worker: str) -> None:
        """Give a machine that never booted no ticket."""
        self.disable(worker)

    def release(self, worker: str) -> None:
        """Fail the ticket of a machine that is gone."""
        self._farm.burn()
        now = self._farm.now
        for ticket in self.tickets():
            if ticket.machine == worker:
                self.change(ticket.id, lambda each: fail(each, "it is gone", now), now)

    def pause(self) -> float:
        """Return how long `confirm` waits."""
        return 0.0

    def confirm(self) -> None:
        """See that what was told stands."""

    def _tenancy(self, machine: str) -> Tenancy:
        return self.known.get(machine, Tenancy(machine, self._farm.now))


class TicketFarm(Farm):
    """Everything outside of the program, where work waits as tickets."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.desk = FarmDesk(self, fleet)

    def open(self, **said: object) -> None:
        """Have a client open a ticket."""
        self.desk.open(a_ticket(0, **({"opened_at": self.now, "heard_at": self.now} | said)))

    def sources(self) -> Sources:
        """Return the edges, as a command would wire them."""
        return Sources(
            queues={"tickets": self.desk},
            providers={name: Cloud(self, name) for name in CLOUDS},
            registries={"tickets": self.desk},
            engine_of=lambda _: self.engine,
            store=self.store,
            desks={"tickets": self.desk},
        )

    def observe(self) -> World:
        """Return the world as a run sees it: once what is free was given out."""
        return hand_out_all(self.fleet, super().observe(), self.sources(), lambda _: None)

    def told(self, plan: Plan) -> dict[str, str]:
        """Return what a plan says of each ticket that waited: who serves it, or why nobody."""
        told = {key: each.because for each in plan.unserved for key in each.requests}
        for signature in plan.signatures:
            told |= signature.by_worker
            told |= signature.by_create
        return told
