"""A farm whose machines are given out by tickets."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime

from fleet.apply.observe import Sources
from fleet.errors import StoreFailed, WorkerBusy
from fleet.model.facts import Listing, MachineState, QueueReading, Unknown, World
from fleet.model.plan import Plan
from fleet.model.tickets import Given, Leased, Ticket, fail
from fleet.ports import Tell
from fleet.schema.model import Fleet
from fleet.tickets.rounds import hand_out_all
from fleet.tickets.tenancy import Tenancy, touch
from tests.builders.ticketing import a_ticket
from tests.fakes.machine_cleaner import FakeMachineCleaner
from tests.fakes.source_reader import FakeSourceReader
from tests.fakes.ticket_desk import FakeTicketDesk
from tests.laws.machine import CLOUDS, Cloud, Farm, Made
from tests.ports.engines import quiet


class FarmDesk(FakeTicketDesk):
    """The written desk, which is the registry of its machines too, and notes what it gave."""

    def __init__(self, farm: "TicketFarm", fleet: Fleet) -> None:
        super().__init__(fleet)
        self._farm = farm
        self.leases: list[tuple[int, str]] = []
        self.sandboxes: dict[int, set[str]] = {}
        """A machine, by its number among those that had a ticket, to the sandboxes it served."""
        self._served: list[Made] = []
        self.given_dirty: list[str] = []

    def clean(self, machine: str, trouble: str) -> None:
        """Note that a machine was cleaned, or what the trouble was."""
        self._farm.burn()
        super().clean(machine, trouble)

    def settle(
        self, now: datetime, machines: Collection[str] | None, broken: Collection[str] = ()
    ) -> tuple[Ticket, ...]:
        """Let tickets expire; nothing where the store cannot be reached."""
        if "tickets" in self._farm.blind:
            raise StoreFailed("the store does not answer")
        return super().settle(now, machines, broken)

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Give out machines, and note them."""
        dirty = self.released()
        got = super().lease(given, now)
        for each in given:
            if each.ticket in got.tickets:
                made = self._farm.made[each.machine]
                if all(other is not made for other in self._served):
                    self._served.append(made)
                key = next(n for n, other in enumerate(self._served) if other is made)
                self.sandboxes.setdefault(key, set()).add(self.all[each.ticket].effective_sandbox)
                self.leases.append((each.ticket, each.machine))
                own = self.known.get(each.machine)
                if each.machine in dirty and own and own.since >= made.created_at:
                    self.given_dirty.append(each.machine)
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

    def resume(self, worker: str) -> None:
        """Give a machine other tickets again."""
        self._farm.burn()
        self.known[worker] = replace(touch(self._tenancy(worker), self._farm.now), draining=False)

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

    def confirm(self, tell: Tell) -> None:
        """See that what was told stands."""

    def _tenancy(self, machine: str) -> Tenancy:
        return self.known.get(machine, Tenancy(machine, self._farm.now))


class TicketCloud(Cloud):
    """One provider, whose livechecks find machines broken."""

    def __init__(self, farm: "TicketFarm", name: str) -> None:
        super().__init__(farm, name)
        self._broken = farm.is_broken

    def list(self, fleet: str) -> Listing | Unknown:
        """Return what is there, broken or not."""
        listing = super().list(fleet)
        if isinstance(listing, Unknown):
            return listing
        machines = tuple(
            each.altered(state=MachineState.FAILED) if self._broken(each.name) else each
            for each in listing.machines
        )
        return listing.altered(machines=machines)


class TicketFarm(Farm):
    """Everything outside of the program, where work waits as tickets."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.desk = FarmDesk(self, fleet)
        self.cleaner = FakeMachineCleaner()
        self.broken: set[tuple[str, datetime]] = set()

    def is_broken(self, name: str) -> bool:
        """Say whether livechecks of a machine fail."""
        return name in self.made and (name, self.made[name].created_at) in self.broken

    def open(self, **said: object) -> None:
        """Have a client open a ticket."""
        self.desk.open(a_ticket(0, **({"opened_at": self.now, "heard_at": self.now} | said)))

    def sources(self) -> Sources:
        """Return the edges, as a command would wire them."""
        return Sources(
            asking=FakeSourceReader,
            queues={"tickets": self.desk},
            providers={name: TicketCloud(self, name) for name in CLOUDS},
            registries={"tickets": self.desk},
            engine_of=lambda _: self.engine,
            store=self.store,
            desks={"tickets": self.desk},
            cleaners=dict.fromkeys(CLOUDS, self.cleaner),
        )

    def observe(self) -> World:
        """Return the world as a run sees it: once what is free was given out."""
        return hand_out_all(self.fleet, super().observe(), self.sources().of_tickets, quiet, quiet)

    def told(self, plan: Plan) -> dict[str, str]:
        """Return what a plan says of each ticket that waited: who serves it, or why nobody."""
        told = {key: each.because for each in plan.unserved for key in each.requests}
        for signature in plan.signatures:
            told |= signature.by_worker
            told |= signature.by_create
        return told
