"""What every HandOut does in a run: without a ticket, nothing."""

import pytest

from fleet.apply.observe import Sequential
from fleet.apply.satellites import HandOut, MachineRecords, SeenRun, TicketSources
from fleet.model.facts import Unknown, World
from fleet.reconcile import reconcile
from fleet.tickets import rounds
from tests.builders import NOW
from tests.builders.stores import new_store
from tests.builders.ticketing import a_ticket_fleet
from tests.fakes.hand_out import FakeHandOut

FLEET = a_ticket_fleet()
WORLD = World(fleet="debian-ci", time=NOW, providers={"desk": Unknown(unknown="not read")})


@pytest.fixture(params=[FakeHandOut(), rounds])
def hand_out(request: pytest.FixtureRequest) -> HandOut:
    made: HandOut = request.param
    return made


@pytest.fixture
def sources() -> TicketSources:
    store = new_store()
    return TicketSources({}, {}, store, Sequential())


def test_world_is_unchanged_without_ticket_queue(
    hand_out: HandOut, sources: TicketSources
) -> None:
    said: list[str] = []

    assert hand_out.hand_out_all(FLEET, WORLD, sources, said.append, said.append) == WORLD
    hand_out.note_waits(FLEET, WORLD, reconcile(FLEET, WORLD), sources)
    assert said == []


def test_no_ticket_gets_a_machine_when_none_waits(
    hand_out: HandOut, sources: TicketSources
) -> None:
    said: list[str] = []
    seen = SeenRun(FLEET, WORLD, sources, NOW)

    given = hand_out.hand_out_again(seen, Sequential(), NOW, said.append, said.append)

    assert given is False
    assert said == []


def test_no_machine_is_forgotten_without_ticket_store(hand_out: HandOut) -> None:
    records = MachineRecords(tuple, (), NOW)

    assert [*hand_out.with_forgotten(FLEET, {}, {}, {}, records)] == []
