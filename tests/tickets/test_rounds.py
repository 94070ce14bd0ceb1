"""Machines are given to tickets before a run decides, and their clients get the answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from fleet.apply.observe import Sequential, Sources
from fleet.apply.satellites import SeenRun, TicketSources
from fleet.model.facts import Listing, Stack, Unknown, World
from fleet.model.tickets import Given, Leased, TicketState, close
from fleet.ports import Engine
from fleet.reconcile import reconcile
from fleet.tickets.rounds import fill, hand_out_again, hand_out_all, note_waits
from tests.builders import NOW, a_listing, a_stack, some_inputs
from tests.builders.sentences import tells
from tests.builders.stores import new_store
from tests.builders.ticketing import a_tenancy, a_ticket, a_ticket_fleet, listing_of
from tests.fakes.machine_cleaner import FakeMachineCleaner
from tests.fakes.source_reader import FakeSourceReader
from tests.fakes.ticket_desk import FakeTicketDesk

NAME = "debian-ci-powerful-0001"
LATER = NOW + timedelta(minutes=1)
RECORDED = {
    "powerful": a_stack(
        provider="desk", workers=(some_inputs(name=NAME, type="ccx63"),), ids={NAME: "1"}
    )
}


class BusyDesk(FakeTicketDesk):
    """A desk at which something else happens right before machines are given out."""

    at_lease: Callable[[], None] = staticmethod(lambda: None)

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        self.at_lease()
        return super().lease(given, now)


class Farm:
    """One desk, and a provider that lists what a test says."""

    def __init__(self, **queue: str) -> None:
        self.fleet = a_ticket_fleet(queues={"tickets": {"kind": "tickets", **queue}})
        self.desk = BusyDesk(self.fleet)
        self.cleaner = FakeMachineCleaner()
        self.said: list[str] = []
        self.noted: list[str] = []

    def run(
        self,
        listing: Listing | Unknown,
        *,
        at: datetime = NOW,
        stacks: Mapping[str, Stack | Unknown] = RECORDED,
    ) -> World:
        """Give out what is free, and return the world as it is then."""
        world = World(
            fleet="debian-ci",
            time=at,
            queues={"tickets": self.desk.read(at)},
            providers={"desk": listing},
            stacks=dict(stacks),
        )
        sources = Sources(
            asking=FakeSourceReader,
            queues={},
            providers={},
            registries={},
            engine_of=_no_engine,
            store=new_store(created=False),
            desks={"tickets": self.desk},
            cleaners={"desk": self.cleaner},
        )
        return hand_out_all(
            self.fleet, world, sources.of_tickets, self.said.append, self.noted.append
        )

    def use(self) -> None:
        """Have alice use the machine and close her ticket; bob, of another sandbox, waits then."""
        alice = self.desk.open(a_ticket(sandbox="alice"))
        self.run(listing_of())
        assert self.desk.all[alice].machine == NAME
        self.desk.change(alice, lambda ticket: close(ticket, NOW), NOW)
        self.bob = self.desk.open(a_ticket(sandbox="bob"))

    def bob_has(self) -> str:
        """Return the machine of bob."""
        return self.desk.all[self.bob].machine


def _no_engine(provider: str) -> Engine:
    raise AssertionError(provider)


def test_new_machine_with_name_of_disabled_one_is_assigned() -> None:
    farm = Farm()
    farm.use()
    farm.desk.known[NAME] = replace(farm.desk.known[NAME], disabled=True)

    farm.run(listing_of(created_at=LATER), at=LATER + timedelta(minutes=1))

    assert farm.bob_has() == NAME
    assert farm.desk.known[NAME].sandbox == "bob"


def test_refused_lease_is_reported_and_run_continues() -> None:
    farm = Farm()
    farm.desk.open(a_ticket())
    farm.desk.at_lease = lambda: farm.desk.known.update(
        {NAME: a_tenancy(machine=NAME, disabled=True)}
    )

    farm.run(listing_of())

    (line,) = farm.said
    assert line.startswith("powerful: ticket 1 ")
    assert NAME in line


@pytest.mark.parametrize(
    ("stacks", "known"),
    [
        (RECORDED, [NAME]),
        ({"powerful": Unknown(unknown="no such provider")}, [NAME]),
        ({}, []),
    ],
    ids=["in its stack", "its stack is unreadable", "in none"],
)
def test_machine_absent_from_a_listing_is_kept_by_its_stack(
    stacks: dict[str, Stack | Unknown], known: list[str]
) -> None:
    farm = Farm()
    farm.use()

    farm.run(a_listing(), at=LATER, stacks=stacks)

    assert [*farm.desk.known] == known
    farm.run(listing_of(), at=LATER)
    assert farm.bob_has() == ("" if known else NAME)


def test_released_machine_is_cleaned_once_after_a_note() -> None:
    farm = Farm()
    farm.use()

    farm.run(listing_of(), at=LATER)
    farm.run(listing_of(), at=LATER)

    assert farm.cleaner.cleaned == [NAME]
    assert farm.noted == [
        f"queue tickets: give {NAME} to ticket 1",
        f"provider desk: release {NAME}",
    ]


@pytest.mark.parametrize("is_tried", [True, False])
def test_uncleaned_machine_is_reported_and_not_reassigned(*, is_tried: bool) -> None:
    farm = Farm()
    farm.use()
    carol = farm.desk.open(a_ticket(sandbox="alice"))
    if is_tried:
        farm.cleaner.troubles[NAME] = "release ended with status 1: no room"
    else:
        farm.cleaner.untried.add(NAME)

    farm.run(listing_of(), at=LATER)

    assert (farm.desk.all[carol].machine, farm.desk.known[NAME].draining) == ("", is_tried)
    assert farm.said[-1].startswith(f"powerful: {NAME} ")
    assert tells(farm.said[-1], "release", *(("ended", "1") if is_tried else ("started",)))
    farm.cleaner.untried.clear()
    farm.run(listing_of(), at=LATER)
    assert farm.desk.all[carol].machine == ("" if is_tried else NAME)


def test_failed_livechecks_fail_the_ticket_of_the_machine() -> None:
    farm = Farm()
    number = farm.desk.open(a_ticket())
    farm.cleaner.doubts.add(NAME)
    farm.run(listing_of())
    assert farm.desk.all[number].machine == ""
    farm.cleaner.doubts.clear()
    farm.run(listing_of())

    farm.run(listing_of(state="failed"), at=LATER)

    ticket = farm.desk.all[number]
    assert (ticket.state, farm.cleaner.cleaned) == (TicketState.FAILED, [])
    assert NAME in ticket.because


@pytest.mark.parametrize(
    ("template", "answer"),
    [
        ("{host}", "192.0.2.1"),
        ("ssh -p {port} root@{host}", "ssh -p 22 root@192.0.2.1"),
        ("host: {host}\nname: {name}\n", "host: 192.0.2.1\nname: m-1"),
        ("{pool}: {data}", "powerful: {name}"),
    ],
)
def test_answer_contains_values_of_machine_once(template: str, answer: str) -> None:
    told = {"name": "m-1", "host": "192.0.2.1", "pool": "powerful", "data": "{name}"}

    assert fill(template, told) == answer
    assert fill("[{data}] {port}", {"name": "m-1", "port": "2222"}) == "[] 2222"


def test_nothing_is_handed_out_without_ticket_queues() -> None:
    fleet, said = a_ticket_fleet(), list[str]()
    world = World(fleet="debian-ci", time=NOW, providers={"desk": Unknown(unknown="not read")})
    sources = TicketSources({}, {}, new_store(), Sequential())
    seen = SeenRun(fleet, world, sources, NOW)

    assert hand_out_all(fleet, world, sources, said.append, said.append) == world
    assert not hand_out_again(seen, Sequential(), NOW, said.append, said.append)
    note_waits(fleet, reconcile(fleet, world), sources)
    assert said == []
