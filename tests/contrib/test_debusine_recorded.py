"""What a real Debusine scheduled and counted is what every form of matching says."""

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from contrib.debusine.sql import Terms
from contrib.debusine.statements import PoolOffer, count_waiting, requests_for_worker, tasks_of
from fleet.tagrules.debusine import WorkerRow
from fleet.tagrules.offers import ask_of_tags, match, offer_of_tags
from tests.builders import a_fleet
from tests.rigs import postgres
from tests.rigs.debusine_tables import Tables
from tests.rigs.recorded import recorded_requests
from tests.rigs.replay import RECORDED

FLEET = a_fleet(tags={})
BARE = Terms()


def recorded_workers() -> dict[str, tuple[int, WorkerRow]]:
    reported = {
        line["worker"]: line["body"]
        for line in map(json.loads, _lines("worker-dynamic-metadata.jsonl"))
    }
    found = {}
    for line in _lines("workers-state.txt"):
        cells = [cell.strip() for cell in line.split("|")]
        if cells[0].isdecimal():
            dynamic = reported.get(cells[1].removesuffix("-example-org"), {})
            row = WorkerRow(cells[2], json.loads(cells[-1]), dynamic)
            found[cells[1]] = int(cells[0]), row
    return found


def pool_of(row: WorkerRow) -> PoolOffer:
    return PoolOffer(offer_of_tags(FLEET, row.provides, row.requires), tasks_of(row))


@pytest.fixture(scope="module")
def tables(postgres_server: str) -> Iterator[Tables]:
    """Return Debusine's tables as they were recorded, or skip loudly."""
    with (
        postgres.database(postgres_server) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        tables = Tables(connection)
        tables.create()
        workers = recorded_workers()
        tables.add_workers(dict(workers.values()), {n: name for name, (n, _) in workers.items()})
        tables.add_requests(recorded_requests())
        yield tables


def test_each_recorded_worker_got_first_request_found_by_sql(
    tables: Tables,
) -> None:
    recorded = re.findall(
        r"\((\d+), '\w+', '([\w-]+)'\)", "".join(_lines("one-scheduler-pass.txt"))
    )
    workers = recorded_workers()

    got = []
    with tables.connection.transaction(force_rollback=True):
        tables.connection.execute("UPDATE db_workrequest SET status = 'pending', worker_id = NULL")
        for _, name in recorded:
            number, row = workers[name]
            first = tables.ask(requests_for_worker(pool_of(row), BARE))[0][0]
            tables.connection.execute(
                "UPDATE db_workrequest SET worker_id = %s WHERE id = %s", (number, first)
            )
            got.append((str(first), name))

    assert got == recorded


def test_bulk_matching_contains_worker_of_each_recorded_request() -> None:
    workers = recorded_workers()
    offers = {str(number): pool_of(row).offer for number, row in workers.values()}
    requests = [row for row in recorded_requests() if row.worker is not None]
    asks = [ask_of_tags(FLEET, row.required, row.provided) for row in requests]

    fitting = match(asks, offers)

    assert len(requests) == 5
    assert all(str(row.worker) in fitting[ask] for row, ask in zip(requests, asks, strict=True))


def test_number_of_candidates_equals_count_of_debusine(
    tables: Tables,
) -> None:
    before, after = _candidates()
    workers = {name: pool_of(row) for name, (_, row) in recorded_workers().items()}

    counted = {
        pool: number
        for pool, _, number in tables.ask(
            count_waiting({name: workers[name] for name in before}, BARE)
        )
    }

    assert before == {"build-arm64-01-example-org": 26, "build-amd64-01-example-org": 24}
    assert counted == before
    assert after == dict.fromkeys(before, 0)


@pytest.mark.parametrize(
    "drained", [{"required_tags": ["task:fleet:drain"]}, {"tasks_allowlist": []}]
)
def test_drained_worker_has_no_candidates(tables: Tables, drained: dict[str, Any]) -> None:
    _, row = recorded_workers()["build-arm64-01-example-org"]
    pool = pool_of(WorkerRow(row.worker_type, drained, row.dynamic_metadata))

    assert tables.ask(requests_for_worker(pool, BARE)) == []
    assert tables.ask(count_waiting({"drained": pool}, BARE)) == []


def test_matches_of_worker_with_all_tags_equal_count_of_debusine(
    tables: Tables,
) -> None:
    every = {tag for row in recorded_requests() for tag in row.required}
    grouped = [
        int(line.split("|")[-2]) for line in _lines("demand-grouped.txt") if "debian |" in line
    ]

    counted = tables.ask(count_waiting({"any": PoolOffer(offer_of_tags(FLEET, every))}, BARE))

    assert counted == [("any", "debian", sum(grouped))]


def test_fresh_worker_provides_its_type_and_configured_tags() -> None:
    tag = "worker:task:worker:noop:version:1"

    assert WorkerRow("external", {}, {}).provides == {"worker:type:external"}
    assert WorkerRow("external", {"provided_tags": [tag]}, {}).provides == {
        *("worker:type:external", tag)
    }


def test_real_worker_fits_the_requests_that_it_ran() -> None:
    ran = ["worker:task:worker:noop:version:1", "worker:type:external"]
    offers = {name: pool_of(row).offer for name, row in real_workers().items()}

    fitting = match([ask_of_tags(FLEET, ran)], offers)

    assert set(offers) == {"celery", "real-01-example-org", "scheduler"}
    assert list(fitting.values()) == [("real-01-example-org",)]


def real_workers() -> dict[str, WorkerRow]:
    """Return the rows of psql, in which one cell goes over many lines."""
    found: dict[str, str] = {}
    name = ""
    for line in _lines("real-worker-rows.txt"):
        cells = line.split("|")
        if len(cells) == 6 and "+--" not in line and cells[0].strip() != "name":
            name = cells[0].strip() or name
            found[name] = found.get(name, "") + cells[3].strip().removesuffix("+")
    rows = {name: json.loads(text) for name, text in found.items()}
    return {n: WorkerRow(row["system:worker_type"], {}, row) for n, row in rows.items()}


def _candidates() -> tuple[dict[str, int], dict[str, int]]:
    text = "\n".join(_lines("drain-by-metadata.txt"))
    before, _, after = text.partition("after")
    found = [
        {name: int(n) for name, n in re.findall(r"^(\S+) candidates (\d+)$", part, re.MULTILINE)}
        for part in (before, after)
    ]
    return found[0], found[1]


def _lines(name: str) -> list[str]:
    return (RECORDED / name).read_text(encoding="utf-8").splitlines()
