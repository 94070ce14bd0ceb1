"""The forms of matching agree on real parts: specification, bulk, SQL and `Q` on PostgreSQL.

A thousand workers and requests (in the long campaign; a hundred each day) are every pair of them.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from random import Random
from types import ModuleType

import psycopg
import pytest

from contrib.debusine.sql import Terms, terms_of
from contrib.debusine.statements import (
    PoolOffer,
    count_waiting,
    requests_for_worker,
    tasks_of,
    workers_for_request,
)
from fleet.schema.model import Fleet
from fleet.tagrules.debusine import WorkerRow
from fleet.tagrules.offers import Ask, match, satisfies
from tests.laws.pairs import BARE, DECLARED, ask_of, draw_request, draw_worker, offer_of
from tests.rigs import postgres
from tests.rigs.debusine_tables import RequestRow, Tables

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "laws"
SIDE = 1000 if LONG else 101
"""Workers, and as many requests: the square of it is the number of pairs."""

Pairs = frozenset[tuple[int, int]]
"""Ids of workers and requests that match."""


@dataclass(frozen=True)
class Drawn:
    """Rows, the same rows in a real database, and what the specification says of them."""

    fleet: Fleet
    workers: dict[int, WorkerRow]
    requests: dict[int, RequestRow]
    tables: Tables
    expected: Pairs

    @property
    def terms(self) -> Terms:
        """Return what the compilers are told of this fleet.yaml."""
        return terms_of(self.fleet)

    def ask(self, request: int) -> Ask:
        """Return the ask of a request."""
        return ask_of(self.fleet, self.requests[request])

    def pool(self, worker: int) -> PoolOffer:
        """Return the offer of a worker as one of a pool."""
        row = self.workers[worker]
        return PoolOffer(offer_of(self.fleet, row), tasks_of(row))


@pytest.fixture(scope="module")
def url(postgres_server: str) -> Iterator[str]:
    """Return where a real PostgreSQL is, or skip loudly."""
    with postgres.database(postgres_server) as url:
        yield url


@pytest.fixture(scope="module", params=[BARE, DECLARED], ids=["bare", "declared"])
def drawn(request: pytest.FixtureRequest, url: str) -> Iterator[Drawn]:
    """Return workers and requests with every pair judged by the specification."""
    random = Random(4)  # noqa: S311 - the same pairs on every day
    workers = {number: draw_worker(random) for number in range(1, SIDE + 1)}
    requests = {number: draw_request(random, number) for number in range(1, SIDE + 1)}
    asks = {number: ask_of(request.param, row) for number, row in requests.items()}
    offers = {number: offer_of(request.param, row) for number, row in workers.items()}
    expected = frozenset(
        (worker, number)
        for worker, offer in offers.items()
        for number, ask in asks.items()
        if satisfies(ask, offer) and tasks_of(workers[worker]).take(requests[number].task)
    )
    with psycopg.connect(url, autocommit=True) as connection:
        tables = Tables(connection)
        tables.create()
        tables.add_workers(workers, {number: f"w-{number}" for number in workers})
        tables.add_requests(requests.values())
        yield Drawn(request.param, workers, requests, tables, expected)


@pytest.fixture(scope="module")
def models(url: str) -> Iterator[ModuleType]:
    """Return Debusine's models, connected to the same database."""
    if find_spec("django") is None:
        pytest.skip("matching with Q is NOT TESTED: Django is not installed")
    from tests.rigs import debusine_models

    connection = debusine_models.connect(url)
    yield debusine_models
    connection.close()


def test_sample_has_enough_matching_and_other_pairs(drawn: Drawn) -> None:
    pairs = SIDE * SIDE

    assert pairs > 10_000
    assert pairs * 0.05 < len(drawn.expected) < pairs * 0.95


def test_bulk_matching_equals_single_matching(drawn: Drawn) -> None:
    offers = {str(worker): drawn.pool(worker).offer for worker in drawn.workers}

    fitting = match(map(drawn.ask, drawn.requests), offers)

    assert drawn.expected == {
        (int(worker), request)
        for request, row in drawn.requests.items()
        for worker in fitting[drawn.ask(request)]
        if tasks_of(drawn.workers[int(worker)]).take(row.task)
    }


def test_sql_finds_the_requests_that_a_worker_can_run(drawn: Drawn) -> None:
    found = {
        (worker, request)
        for worker in drawn.workers
        for (request,) in drawn.tables.ask(requests_for_worker(drawn.pool(worker), drawn.terms))
    }

    assert found == drawn.expected


def test_sql_finds_the_workers_that_can_run_a_request(drawn: Drawn) -> None:
    found = {
        (worker, request)
        for request, row in drawn.requests.items()
        for worker, _ in drawn.tables.ask(
            workers_for_request(drawn.ask(request), row.task, drawn.terms)
        )
    }

    assert found == drawn.expected


def test_sql_counts_waiting_requests_of_all_pools(drawn: Drawn) -> None:
    pools = {str(worker): drawn.pool(worker) for worker in drawn.workers}

    counted = drawn.tables.ask(count_waiting(pools, drawn.terms))

    expected = Counter((str(w), drawn.requests[r].scope) for w, r in drawn.expected)
    assert {(pool, scope): number for pool, scope, number in counted} == expected


def test_django_q_finds_the_requests_that_a_worker_can_run(
    drawn: Drawn, models: ModuleType
) -> None:
    from contrib.debusine.matching import requests_for

    found = {
        (worker, request)
        for worker, row in drawn.workers.items()
        for request, task in models.WorkRequest.objects.filter(
            requests_for(row.provides, row.requires, drawn.terms)
        ).values_list("id", "task_name")
        if tasks_of(row).take(task)
    }

    assert found == drawn.expected


def test_django_q_finds_the_workers_that_can_run_a_request(
    drawn: Drawn, models: ModuleType
) -> None:
    from contrib.debusine.matching import workers_for

    found = {
        (worker, request)
        for request, row in drawn.requests.items()
        for worker in models.Worker.objects.filter(
            workers_for(row.required, row.provided, drawn.terms)
        ).values_list("id", flat=True)
        if tasks_of(drawn.workers[worker]).take(row.task)
    }

    assert found == drawn.expected
