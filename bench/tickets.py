"""Measure giving out machines, beside a stand-in for Resalloc's pass in the same run.

A pass is everything between two looks at the store: read the open tickets and what is remembered
of machines, take the inventory, judge and match what is asked for, decide, write the leases down.
5,000 tickets wait for 400 free machines that fit all of them; 1,000 wait beside 50 that fit none.
The stand-in does the same with the same input once, in SQLite and in PostgreSQL, where there is
one. `open_s` is one more ticket where 10,000 are open. What `bench.load` measures over the wire is
with it.
"""

import gc
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import perf_counter

import sqlalchemy as sa

from bench.load import measure_load
from bench.report import Report
from bench.resalloc import assign_tickets, filled
from fleet.__main__ import COLLECTION
from fleet.apply.observe import Sources
from fleet.errors import FleetError
from fleet.model.facts import Listing, Machine, MachineState, Stack, WorkerInputs, World
from fleet.model.tickets import Ticket
from fleet.ports import Engine
from fleet.schema.model import Fleet
from fleet.state.database import TENANCIES, TICKETS
from fleet.state.store import Store
from fleet.tickets.desk import StoredTicketDesk
from fleet.tickets.rounds import hand_out_all
from fleet.tickets.store import DatabaseTickets
from tests.fakes.source_reader import FakeSourceReader
from tests.rigs import postgres

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
ROUNDS = 5
OPENED = 50
MANY = 5_000
MACHINES = 400
FEW = 1_000
UNUSABLE = 50
OPEN = 10_000


def measure() -> Report:
    """Return seconds of a pass, and how many times longer the stand-in takes."""
    # The stand-in profits from it too.
    gc.set_threshold(*COLLECTION)
    figures: dict[str, float] = {}
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        figures |= _ours(f"sqlite:///{folder}/store.db", "")
        theirs = _theirs(f"sqlite:///{folder}/resalloc.db", "")
        figures |= theirs
        ratios |= _ratios(figures, "")
    if because := postgres.why_not():
        print(f"bench: PostgreSQL is not measured: {because}", file=sys.stderr)
    else:
        with postgres.running() as url:
            figures |= _ours(url, "_postgresql")
        with postgres.running() as url:
            driven = url.replace("postgresql:", "postgresql+psycopg:")
            figures |= _theirs(driven, "_postgresql")
        ratios |= _ratios(figures, "_postgresql")
    figures |= measure_load()
    return Report(
        name="tickets",
        figures=figures,
        ratios=ratios,
        floors={"vs_resalloc_pass": 100},
    )


def _ratios(figures: dict[str, float], suffix: str) -> dict[str, float]:
    return {
        f"vs_resalloc_pass{suffix}": figures[f"resalloc_pass_5000_x_400_s{suffix}"]
        / figures[f"pass_5000_x_400_s{suffix}"],
        f"vs_resalloc_pass_unusable{suffix}": figures[
            f"resalloc_pass_1000_x_50_unusable_s{suffix}"
        ]
        / figures[f"pass_1000_x_50_unusable_s{suffix}"],
    }


def _theirs(url: str, suffix: str) -> dict[str, float]:
    """Return what the stand-in takes, once."""
    cases = ((MANY, MACHINES, True), (FEW, UNUSABLE, False))
    took = []
    for waiting, ready, fitting in cases:
        with filled(url, waiting=waiting, ready=ready, fitting=fitting) as engine:
            began = perf_counter()
            done = assign_tickets(engine)
            took.append(perf_counter() - began)
        if done.assigned != (ready if fitting else 0):
            raise SystemExit(f"bench: the stand-in gave out {done.assigned} machines")
    return {
        f"resalloc_pass_5000_x_400_s{suffix}": took[0],
        f"resalloc_pass_1000_x_50_unusable_s{suffix}": took[1],
    }


def _ours(url: str, suffix: str) -> dict[str, float]:
    store = Store(url, "bench")
    store.init()
    book = DatabaseTickets(store.begin, "tickets")
    figures = {}
    for name, tickets, machines, fitting in (
        ("pass_5000_x_400_s", MANY, MACHINES, True),
        ("pass_1000_x_50_unusable_s", FEW, UNUSABLE, False),
    ):
        figures[name + suffix] = min(
            _pass(store, book, tickets, (machines, fitting)) for _ in range(ROUNDS)
        )
    _fill(store, book, OPEN)
    figures["open_at_10000_s" + suffix] = min(_timed(lambda: _open(book)) for _ in range(OPENED))
    return figures


def _pass(store: Store, book: DatabaseTickets, waiting: int, ready: tuple[int, bool]) -> float:
    """Return the seconds of one pass over so many tickets and free machines."""
    machines, fitting = ready
    _fill(store, book, waiting)
    fleet = a_bench_fleet("arch_x86_64" if fitting else "arch_s390x")
    desk = StoredTicketDesk(fleet, book, _Clock())
    world = a_bench_world(machines)
    sources = Sources({}, {}, {}, _no_engine, store, FakeSourceReader, desks={"tickets": desk})

    def once() -> None:
        read = world.model_copy(update={"queues": {"tickets": desk.read(NOW)}})
        hand_out_all(fleet, read, sources.of_tickets, lambda _: None, lambda _: None)

    took = _timed(once)
    given = sum(1 for ticket in book.tickets() if ticket.machine)
    if given != (machines if fitting else 0):
        raise SystemExit(f"bench: {given} machines were given out")
    return took


def _fill(store: Store, book: DatabaseTickets, tickets: int) -> None:
    """Have so many tickets wait in 50 sandboxes, of 20 owners, and nothing else."""
    book.tickets()
    with store.begin() as connection:
        connection.execute(sa.delete(TICKETS))
        connection.execute(sa.delete(TENANCIES))
    first = book.open(_ticket(0), most=OPEN * 2, most_of_submitter=OPEN * 2)
    with store.begin() as connection:
        row = connection.execute(sa.select(TICKETS).where(TICKETS.c.id == first.id)).one()
        rows = [
            {
                **row._asdict(),
                "id": first.id + number,
                "sandbox": f"owner/project-{number % 50}--submitter",
                "owner": f"owner-{number % 20}",
                "submitter": f"submitter-{number % 20}",
            }
            for number in range(1, tickets)
        ]
        connection.execute(sa.insert(TICKETS), rows)


def _open(book: DatabaseTickets) -> None:
    book.open(_ticket(1), most=OPEN * 2, most_of_submitter=OPEN * 2)


def _ticket(number: int) -> Ticket:
    return Ticket(
        0,
        ("arch_x86_64", "copr_builder"),
        opened_at=NOW - timedelta(minutes=5),
        heard_at=NOW,
        submitter=f"submitter-{number}",
        owner=f"owner-{number}",
        sandbox="owner/project-0--submitter",
    )


def a_bench_fleet(arch: str) -> Fleet:
    """Return a fleet whose one pool provides an architecture, with what production limits."""
    return Fleet.model_validate(
        {
            "fleet": "bench",
            "providers": {"desk": {"kind": "sim"}},
            "queues": {"tickets": {"kind": "tickets", "limits": {"per": {"owner": 90}}}},
            "images": {
                "builder": {"existing": {"desk": "b-1"}, "provides": ["copr_builder", arch]}
            },
            "pools": {
                "pool": {
                    "provider": "desk",
                    "machine": "ccx33",
                    "image": "builder",
                    "workers": {"max": MACHINES},
                }
            },
        }
    )


def a_bench_world(machines: int) -> World:
    """Return a world in which so many machines run and are free."""
    names = [f"bench-pool-{number:04}" for number in range(1, machines + 1)]
    listed = tuple(
        Machine(
            name=name,
            id=name,
            pool="pool",
            type="ccx33",
            state=MachineState.RUNNING,
            created_at=NOW - timedelta(hours=1),
        )
        for name in names
    )
    recorded = tuple(WorkerInputs(name=name, type="ccx33", image="b-1") for name in names)
    stack = Stack(
        engine="embedded",
        provider="desk",
        serial=1,
        workers=recorded,
        ids={name: name for name in names},
    )
    return World(
        fleet="bench",
        time=NOW,
        providers={"desk": Listing(read_at=NOW, machines=listed)},
        stacks={"pool": stack},
    )


def _timed(measured: Callable[[], None]) -> float:
    began = perf_counter()
    measured()
    return perf_counter() - began


def _no_engine(provider: str) -> Engine:
    raise FleetError(f"no engine changes {provider}: nothing is made here")


class _Clock:
    def now(self) -> datetime:
        """Return the time of every pass."""
        return NOW
