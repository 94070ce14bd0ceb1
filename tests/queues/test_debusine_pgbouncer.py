"""Debusine's database behind a pgbouncer that gives each transaction another connection."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fleet.model.facts import WorkerState
from fleet.queues.debusine.connection import reading
from tests.ports.registries import WORKER, an_enrolment, tables
from tests.ports.stores import postgres_url
from tests.queues.conftest import READER, Debusine
from tests.queues.test_debusine_worker_life import Life
from tests.rigs import pgbouncer
from tests.rigs.debusine_tables import RequestRow, Tables

__all__ = ["postgres_url", "tables"]

pytestmark = pytest.mark.skipif(
    pgbouncer.program() is None, reason="NOT TESTED: pgbouncer is not installed"
)


@pytest.fixture
def pooled(debusine: Debusine) -> Iterator[Debusine]:
    """Return a database that is reached by the pooler alone."""
    with pgbouncer.pooled(debusine.url, "fleet", READER) as url:
        yield replace(debusine, url=url)


def test_pending_requests_are_read_through_pgbouncer(pooled: Debusine) -> None:
    pooled.tables.add_requests([RequestRow(7, ()), RequestRow(8, ())])

    for _ in range(6):  # more often than a driver prepares a statement
        assert [request.count for request in pooled.demand().requests] == [2]


def test_settings_of_reading_are_local_to_its_transaction(pooled: Debusine) -> None:
    shown = "SELECT current_setting('work_mem'), current_setting('transaction_read_only')"
    with reading(pooled.reader) as first:
        assert first.execute(shown.encode()).fetchone() == ("128MB", "on")
        first.rollback()
        assert first.execute(b"SELECT current_setting('work_mem')").fetchone() == ("4MB",)


def test_worker_is_enrolled_and_read(tables: Tables, postgres_url: str) -> None:
    with pgbouncer.pooled(postgres_url, "fleet") as url:
        life = Life(tables, url)
        for _ in range(6):
            life.registry.enrol(an_enrolment())
        workers = life.workers()

    assert workers[WORKER].state is WorkerState.ENROLLED
