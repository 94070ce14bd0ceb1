"""What observing makes of stacks that are missing, moved or another's."""

from collections.abc import Callable
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any

import pytest

from fleet.apply.observe import Concurrently, observe
from fleet.errors import SourceUnreachable
from fleet.model.facts import Demand, Listing, QueueReading, Request, Stack, Unknown
from fleet.model.history import Outcome, StackOutcome
from fleet.model.tickets import Given, Ticket
from fleet.ports import Provider, StackRecord, StackRef
from fleet.tickets.desk import StoredTicketDesk
from fleet.tickets.store import DatabaseTickets
from tests.builders import NOW, a_pool, a_sim_fleet, ago, an_attempt, some_inputs
from tests.builders.sentences import tells
from tests.builders.sources import some_sources
from tests.builders.stores import new_store
from tests.builders.ticketing import a_ticket, a_ticket_fleet
from tests.fakes.engine import FakeEngine, FixedClock
from tests.fakes.queue import FakeProvider
from tests.ports.stores import a_record

REF = StackRef(project="sim", name="debian-ci-b", provider="desk", pool="b")


def stack_seen(engine: FakeEngine, record: StackRecord | None = None) -> Stack | Unknown | None:
    """Return how pool `b` of fleet `debian-ci` sees its stack."""
    store = new_store()
    if record:
        store.record_stack(record)
    sources = some_sources(store, providers={"desk": FakeProvider(NOW)}, engine=engine)
    stacks = observe(a_sim_fleet(pools={"b": a_pool(provider="desk")}), sources, NOW).stacks
    assert isinstance(stacks, dict)
    return stacks.get("b")


def with_a_worker(**labels: str) -> FakeEngine:
    engine = FakeEngine()
    engine.up(REF, [some_inputs(labels=labels)], lambda _: None)
    return engine


def test_recorded_stack_that_is_missing_is_unknown() -> None:
    seen = stack_seen(FakeEngine(), a_record(name=REF.name, pool="b", serial=1))

    assert isinstance(seen, Unknown)
    assert "--forget-stack debian-ci-b" in seen.unknown


def test_stack_that_was_never_created_may_be_missing() -> None:
    assert stack_seen(FakeEngine(), a_record(name=REF.name, pool="b", serial=0)) is None


@pytest.mark.parametrize(
    ("record", "because"),
    [
        (a_record(name=REF.name, pool="b", engine="pulumi"), ("engine pulumi", "embedded")),
        (
            a_record(name=REF.name, pool="b", provider="attic"),
            ("provider attic", "fleet.yaml", "desk"),
        ),
    ],
)
def test_stack_of_another_engine_or_provider_is_unknown(
    record: StackRecord, because: tuple[str, ...]
) -> None:
    seen = stack_seen(with_a_worker(), record)

    assert isinstance(seen, Unknown)
    assert tells(seen.unknown, *because)


def test_stack_of_this_fleet_is_known() -> None:
    assert isinstance(stack_seen(with_a_worker(fleet="debian-ci", pool="b")), Stack)


@pytest.mark.parametrize(
    "labels", [{"fleet": "debian", "pool": "ci-b"}, {"fleet": "debian-ci", "pool": "a"}]
)
def test_stack_with_machines_of_another_fleet_is_unknown(labels: dict[str, str]) -> None:
    seen = stack_seen(with_a_worker(**labels))

    assert isinstance(seen, Unknown)
    assert tells(seen.unknown, f"pool {labels['pool']}", f"{labels['fleet']}")


@pytest.mark.parametrize("created", [True, False])
def test_observation_has_attempts_of_its_store(*, created: bool) -> None:
    store = new_store(created=created)
    if created:
        store.record_attempts([an_attempt()])

    assert observe(a_sim_fleet(), some_sources(store), NOW).attempts == (an_attempt(),) * created


class MeetingProvider:
    """Lists once every other one is being listed too."""

    def __init__(self, meeting: Barrier, says: str = "") -> None:
        self._meeting = meeting
        self._says = says

    def list(self, _: str) -> Listing | Unknown:
        """Return what it lists, after the meeting."""
        self._meeting.wait(timeout=20)
        if self._says:
            raise SourceUnreachable(self._says)
        return Listing(read_at=NOW)


def test_providers_are_listed_concurrently_with_separate_errors() -> None:
    store = new_store()
    meeting = Barrier(3)
    providers: dict[str, Provider] = {
        "c": MeetingProvider(meeting),
        "a": MeetingProvider(meeting, "the cable is out"),
        "b": MeetingProvider(meeting),
    }
    sources = some_sources(store, asking=Concurrently, providers=providers)

    seen = observe(a_sim_fleet(pools={}), sources, NOW).providers

    assert list(seen) == ["a", "b", "c"]
    assert seen["a"] == Unknown(unknown="the cable is out")
    assert seen["b"] == seen["c"] == Listing(read_at=NOW)


class LateProvider:
    """Lists, and somebody takes a ticket meanwhile."""

    def __init__(self, open_ticket: Callable[[], object]) -> None:
        self._open_ticket = open_ticket

    def list(self, _: str) -> Listing | Unknown:
        """Return no machine."""
        self._open_ticket()
        return Listing(read_at=NOW)


def test_ticket_opened_during_observation_is_read() -> None:
    store = new_store()
    fleet = a_ticket_fleet()
    book = DatabaseTickets(store.begin, "tickets")
    desk = StoredTicketDesk(fleet, book, FixedClock(NOW))
    sources = some_sources(
        store,
        queues={"tickets": desk},
        providers={"desk": LateProvider(lambda: opened(book))},
        desks={"tickets": desk},
    )

    assert len(waiting(observe(fleet, sources, NOW).queues["tickets"])) == 1


def test_ticket_queue_is_read_once_per_run() -> None:
    """Else a build of Copr is counted, and so is the ticket that it opened in between."""
    store = new_store()
    book = DatabaseTickets(store.begin, "tickets")
    desk = StoredTicketDesk(a_ticket_fleet(), book, FixedClock(NOW))

    before = desk.read(NOW)
    opened(book)

    assert desk.read(NOW) == before
    assert len(desk.settle(NOW, None)) == 0
    assert len(waiting(desk.read(NOW))) == 1


def opened(book: DatabaseTickets) -> Ticket:
    return book.open(a_ticket(), most=9, most_of_submitter=9)


def waiting(reading: QueueReading) -> tuple[Request, ...]:
    assert isinstance(reading.demand, Demand)
    return reading.demand.requests


def a_run(minutes: int, seconds: int, *, deleted: tuple[str, ...] = ("b-1",)) -> dict[str, Any]:
    """Return a run that began so many minutes ago, as the journal holds it."""
    began = ago(minutes=minutes)
    stacks = (StackOutcome(pool="b", result="applied", deleted=deleted),)
    outcome = Outcome(plan="d", stacks=stacks).model_dump_json()
    return {
        "started": began,
        "ended": began + timedelta(seconds=seconds),
        "plan": "d",
        "outcome": outcome,
    }


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([], None),
        ([a_run(20, 300, deleted=())], None),
        ([a_run(20, 40), a_run(10, 95), a_run(5, 300, deleted=())], 95),
        ([a_run(20, 40) | {"outcome": "b: deleting b-1\n"}], None),
        ([a_run(90, 900), *(a_run(minutes, 30) for minutes in (50, 40, 30, 20, 10))], 30),
    ],
)
def test_delete_seconds_are_those_of_latest_deleting_run(
    runs: list[dict[str, Any]], expected: int | None
) -> None:
    store = new_store()
    for run in runs:
        store.record_run(**run)
    sources = some_sources(store)

    world = observe(a_sim_fleet(providers={}, pools={}), sources, NOW)

    assert world.delete_seconds == expected


class NamingQueue:
    """A Copr that tells the package of each ticket's build."""

    def read(self, now: datetime) -> QueueReading:
        """Return that nothing waits, and what the machine of ticket 1 builds."""
        demand = Demand(read_at=now, stored=True)
        return QueueReading(demand=demand, packages={"1": "kernel", "2": "gcc"})


@pytest.mark.parametrize(("own", "told"), [("", "kernel"), ("linux", "linux")])
def test_work_of_ticket_has_package_of_copr_when_it_has_none(own: str, told: str) -> None:
    store = new_store()
    copr = {"kind": "copr", "url": "https://copr.example.org", "tickets": "tickets"}
    fleet = a_ticket_fleet(queues={"copr": copr, "tickets": {"kind": "tickets"}})
    book = DatabaseTickets(store.begin, "tickets")
    ticket = book.open(a_ticket(package=own), most=9, most_of_submitter=9)
    book.lease([Given(ticket.id, "m1", "powerful", "", NOW)], NOW)
    desk = StoredTicketDesk(fleet, book, FixedClock(NOW))
    sources = some_sources(
        store,
        queues={"copr": NamingQueue(), "tickets": desk},
        providers={"desk": FakeProvider(NOW)},
        desks={"tickets": desk},
    )

    workers = observe(fleet, sources, NOW).queues["tickets"].workers

    assert isinstance(workers, tuple)
    assert [each.work.package for each in workers if each.work] == [told]
