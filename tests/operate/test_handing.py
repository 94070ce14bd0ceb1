"""Machines are given to tickets before a run decides, whatever the desk remembers of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from fleet.facts import Listing, Stack, Unknown, World
from fleet.operate.handing import hand_out_all
from fleet.operate.observe import Sources
from fleet.ports import Engine
from fleet.tickets import close
from tests.builders import NOW, a_listing, a_machine, a_stack, some_inputs
from tests.fakes_desk import FakeDesk
from tests.fakes_store import FakeStore, Shelf
from tests.ticketing import a_tenancy, a_ticket, a_ticket_fleet

NAME = "debian-ci-powerful-1"
FLEET = a_ticket_fleet()
LATER = NOW + timedelta(minutes=1)
RECORDED = {
    "powerful": a_stack(
        provider="desk", workers=(some_inputs(name=NAME, type="ccx63"),), ids={NAME: "1"}
    )
}


def listed(**machine: object) -> Listing:
    given = {"name": NAME, "pool": "powerful", "type": "ccx63", "id": "1"} | machine
    return a_listing(a_machine(**given))


class Farm:
    """One desk, and a provider that lists what a test says."""

    def __init__(self) -> None:
        self.desk = FakeDesk(FLEET)
        self.said: list[str] = []

    def run(
        self,
        listing: Listing | Unknown,
        *,
        at: datetime = NOW,
        stacks: Mapping[str, Stack | Unknown] = RECORDED,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """Give out what is free; something else happens once the desk was read."""
        world = World(
            fleet="debian-ci",
            time=at,
            queues={"tickets": self.desk.read(at)},
            providers={"desk": listing},
            stacks=dict(stacks),
        )
        meanwhile()
        sources = Sources(
            queues={},
            providers={},
            registries={},
            engine_of=_no_engine,
            store=FakeStore(Shelf(), "debian-ci"),
            desks={"tickets": self.desk},
        )
        hand_out_all(FLEET, world, sources, self.said.append)

    def use(self) -> None:
        """Have alice use the machine and close her ticket; bob, of another sandbox, waits then."""
        alice = self.desk.open(a_ticket(sandbox="alice"))
        self.run(listed())
        assert self.desk.all[alice].machine == NAME
        self.desk.change(alice, lambda ticket: close(ticket, NOW), NOW)
        self.bob = self.desk.open(a_ticket(sandbox="bob"))

    def bob_has(self) -> str:
        """Return the machine of bob."""
        return self.desk.all[self.bob].machine


def _no_engine(provider: str) -> Engine:
    raise AssertionError(provider)


def test_a_machine_that_a_listing_omits_once_is_remembered_while_its_stack_records_it() -> None:
    farm = Farm()
    farm.use()

    farm.run(a_listing(), at=LATER)
    farm.run(listed(), at=LATER)

    assert farm.bob_has() == ""


def test_a_machine_is_remembered_while_a_stack_cannot_be_read() -> None:
    farm = Farm()
    farm.use()

    farm.run(a_listing(), at=LATER, stacks={"powerful": Unknown(unknown="no such provider")})
    farm.run(listed(), at=LATER)

    assert farm.bob_has() == ""


def test_a_machine_that_neither_listing_nor_stack_knows_is_forgotten() -> None:
    farm = Farm()
    farm.use()

    farm.run(a_listing(), at=LATER, stacks={})

    assert farm.desk.known == {}


def test_a_machine_made_anew_under_the_name_of_one_that_was_switched_off_is_given_out() -> None:
    farm = Farm()
    farm.use()
    farm.desk.known[NAME] = replace(farm.desk.known[NAME], disabled=True)

    farm.run(listed(created_at=LATER), at=LATER + timedelta(minutes=1))

    assert farm.bob_has() == NAME
    assert farm.desk.known[NAME].sandbox == "bob"


def test_a_machine_that_a_desk_refuses_is_told_and_ends_no_run() -> None:
    farm = Farm()
    farm.desk.open(a_ticket())
    off = a_tenancy(machine=NAME, disabled=True)

    farm.run(listed(), meanwhile=lambda: farm.desk.known.update({NAME: off}))

    assert farm.said == [
        f"powerful: ticket 1 waits on, as machine {NAME} gets no tickets any more"
    ]
