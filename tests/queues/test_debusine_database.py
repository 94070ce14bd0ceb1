"""Demand over SQL: groups of what is treated alike, and Unknown with what to do."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from fleet.model.facts import Demand, Request, Unknown
from fleet.planner.demand import Teams
from fleet.queues.debusine import changes
from fleet.schema.model import Fleet
from fleet.tagrules.derive import context_of
from fleet.tagrules.requests import Judge
from tests.builders import a_fleet, a_pool, an_attempt
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.queues.conftest import READER, Debusine
from tests.queues.rows import row_of, short, split
from tests.rigs.debusine import NOW
from tests.rigs.debusine_tables import RequestRow

CASES = [*read_blocks(Path(__file__).parent / "demand")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_waiting_requests_form_groups_as_in_their_case(debusine: Debusine, case: Block) -> None:
    of_fleet, worker, requests = case.parts
    fleet = fleet_of(of_fleet)
    if worker:
        name, _, static = worker.partition(" static=")
        debusine.add_worker(name, static=yaml.safe_load(static))
    debusine.tables.add_requests(map(row_of, split(requests)))

    assert "; ".join(describe(debusine.demand(fleet), fleet)) == case.result


def fleet_of(text: str) -> Fleet:
    said = yaml.safe_load(f"{{{text}}}")
    pools = {"builders": a_pool(**said.pop("pool"))} if "pool" in said else {}
    return a_fleet(**said, **({"pools": pools} if pools else {}))


def describe(demand: Demand, fleet: Fleet) -> Iterator[str]:
    """Yield each group, then what else was read."""
    teams = Teams(fleet, {})
    for each in demand.requests:
        yield " ".join(_words(each, teams.of(each)))
    for known in demand.history:
        yield " ".join((known.package, "used", *map(str, known.memory_mib)))
    for number, data in demand.environments.items():
        yield f"{number} is {data['architecture']}"


def _words(request: Request, team: str | None) -> Iterator[str]:
    yield request.id
    if request.count > 1:
        yield f"x{request.count}"
    yield from map(short, request.required)
    if request.package:
        yield f"of {request.package}"
    if request.workspace not in (None, "builds"):
        yield f"in {request.workspace}"
    yield from (f"gives {tag}" for tag in request.provided if "source-package" not in tag)
    if request.pending_since and request.pending_since.hour:
        yield f"since {request.pending_since:%H:%M}"
    if request.expected_seconds:
        yield f"takes {request.expected_seconds // 60} min"
    if request.deadline_seconds:
        yield f"within {request.deadline_seconds} s"
    yield from (f"data {key}" for key in request.task_data)
    if team:
        yield f"by {team}"


def test_age_of_oldest_request_has_microseconds(debusine: Debusine) -> None:
    first = datetime(2037, 12, 31, 23, 59, 59, 999_997, tzinfo=UTC)
    later = [first.replace(microsecond=999_998), first.replace(microsecond=999_999)]
    times = {1: later[1], 2: first, 3: later[0]}
    debusine.tables.add_requests([RequestRow(n, created_at=str(t)) for n, t in times.items()])

    (request,) = debusine.demand().requests

    assert (request.id, request.pending_since) == ("2", first)


def test_runs_have_machine_type_from_store(debusine: Debusine) -> None:
    fleet = a_fleet(durations={"sbuild": [{"match": "chromium|linux", "takes": "5h"}]})
    ours = {changes.FLEET: "debian-ci", changes.POOL: "builders"}
    small = debusine.add_worker("w-1", static=ours | {changes.MACHINE: "m-1"})
    big = debusine.add_worker("w-2", static=ours | {changes.MACHINE: "m-2"})
    theirs = debusine.add_worker("w-3", static={changes.FLEET: "other", changes.MACHINE: "m-1"})
    requests = f"""\
1 took=40 of=chromium worker={small}, 2 took=44 of=chromium worker={small},
3 took=6 of=chromium worker={big}, 4 took=5 of=chromium worker={big} result=failure,
5 took=5 of=chromium worker={theirs}, 6 took=5 of=chromium worker=null,
7 took=9 of=hello worker={big}, 8 took=50 of=linux worker={small},
9 of=chromium, 10 of=linux status=running worker={big}"""
    rows = [row_of(f"{each} task=sbuild") for each in split(requests)]
    debusine.tables.add_requests(rows)
    made = [an_attempt(worker="m-1", type="ccx33"), an_attempt(worker="m-2", type="ccx63")]

    demand = debusine.database(fleet, made=lambda: made).read(NOW).demand

    assert isinstance(demand, Demand)
    assert [(each.package, each.machine, each.seconds) for each in demand.runs] == [
        ("chromium", "ccx33", (2400, 2640)),
        ("chromium", "ccx63", (360,)),
        ("linux", "ccx33", (3000,)),
    ]


def test_running_work_has_expected_seconds_of_package(debusine: Debusine) -> None:
    fleet = a_fleet(powerful=[{"match": "debian/.*/chromium", "ask": ["big"]}])
    number = debusine.add_worker("w-1")
    running = f"3 of=chromium status=running worker={number}"
    rows = ("1 took=50 of=chromium", "2 took=10 of=hello", running)
    debusine.tables.add_requests(map(row_of, rows))

    work = debusine.workers(fleet)["w-1"].work

    assert work is not None
    assert work.expected_seconds == 50 * 60


@pytest.mark.parametrize("unknown", ["wait", "any"])
def test_requests_wait_when_their_environments_were_deleted(
    debusine: Debusine, unknown: str
) -> None:
    rule = "derive: [{from: environment_id, lookup: environments, ask: 'worker:build-arch:"
    queue = f"kind: debusine, url: 'http://x', scopes: [debian], unknown_environment: {unknown}"
    fleet = fleet_of(f"{rule}{{value.architecture}}'}}], queues: {{q: {{{queue}}}}}")
    requests = "1, 2 in=12:amd64, 3 in=13, 4 in=14:amd64, 5 in=14:arm64, 6 arm64 in=13"
    rows = split(f"{requests}, 7 data={{environment_id: 15}}")
    debusine.tables.add_requests(map(row_of, rows))

    demand = debusine.demand(fleet)

    judge = Judge(fleet, {}, NOW.date())
    told = context_of(fleet, "q", demand)
    held = {each.id for each in demand.requests if judge.ask_of_alike(each, told).held}
    assert held == ({"3", "4", "7"} if unknown == "wait" else set())
    # 4 and 5 are one group: no record says which of two the environment is.
    assert {each.id: each.count for each in demand.requests}["4"] == 2


def test_scope_or_table_missing_at_server_is_unknown(debusine: Debusine) -> None:
    debusine.tables.add_requests([RequestRow(1), RequestRow(2, scope="kali")])
    debusine.tables.add_pool(1, "theirs", {"instance_wide": True})

    assert debusine.database().read(NOW).rivals == ("theirs",)
    assert tells(debusine.why_unknown(None, "debain"), "debain", "debian", "kali")
    unreachable = debusine.why_unknown(dsn="postgresql://me:s3cret@127.0.0.1:1/debusine")
    assert "s3cret" not in unreachable
    assert len(unreachable.split()) > 5
    debusine.tables.connection.execute("DROP TABLE db_workrequest CASCADE")
    assert tells(debusine.why_unknown(), "no table", "db_workrequest")


@pytest.mark.parametrize(
    ("table", "demand", "workers"),
    [
        ("db_scope", ("db_scope", "fleet debusine grants", "--check"), ("db_scope",)),
        ("db_token", (), ("db_token",)),
        ("db_workerpool", (), ("db_workerpool",)),
    ],
)
def test_missing_right_is_named_where_it_is_needed(
    debusine: Debusine, table: str, demand: tuple[str, ...], workers: tuple[str, ...]
) -> None:
    debusine.tables.add_requests([RequestRow(1)])
    debusine.tables.connection.execute(f"REVOKE ALL ON {table} FROM {READER}".encode())

    reading = debusine.database().read(NOW)

    for part, words in ((reading.demand, demand), (reading.workers, workers)):
        assert isinstance(part, Unknown) == bool(words)
        assert not isinstance(part, Unknown) or tells(part.unknown, "denied", *words)


def test_database_of_another_version_is_refused(debusine: Debusine) -> None:
    debusine.tables.connection.execute("ALTER TABLE db_worker ADD drained boolean")
    debusine.add_worker(
        "celery", worker_type="celery", dynamic={"system:worker_version": "0.17.0"}
    )

    said = debusine.why_unknown()

    assert re.search(r"\b(?!539c41736018)[0-9a-f]{12}\b", said)
    assert tells(said, "reports 0.17.0", "0.16.2 (539c41736018)")


@pytest.mark.parametrize("looked_at", [1, 59, 60, 61, 121])
def test_provided_tags_are_read_for_any_number_of_tags(debusine: Debusine, looked_at: int) -> None:
    tags = [f"task:t{number:03}" for number in range(looked_at)]
    pools = {"builders": a_pool(requires=tags)}
    brought = (tags[0], tags[-1])
    debusine.tables.add_requests([RequestRow(1, provided=(*brought, "task:other"))])

    (request,) = debusine.demand(a_fleet(pools=pools)).requests

    assert request.provided == tuple(sorted(set(brought)))
