"""Demand over SQL: groups of what is treated alike, and Unknown with what to do."""

import re
from datetime import UTC, datetime

import pytest

from fleet.model.facts import Attempt, Demand, TaskHistory, Unknown
from fleet.queues.debusine import changes
from fleet.tagrules.derive import context_of
from fleet.tagrules.requests import Judge
from tests.builders import a_fleet, a_pool
from tests.builders.sentences import tells
from tests.queues.conftest import READER, Debusine
from tests.rigs.debusine import NOW
from tests.rigs.debusine_tables import RequestRow

AMD64 = ("worker:build-arch:amd64",)
TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)
ELEVEN = datetime(2026, 11, 21, 11, tzinfo=UTC)


def of(*packages: str) -> tuple[str, ...]:
    return tuple(f"task:source-package:{package}" for package in packages)


def finished(number: int, minutes: int, **overrides: object) -> RequestRow:
    values: dict[str, object] = {
        "id": number,
        "required": AMD64,
        "status": "completed",
        "result": "success",
        "worker": 1,
        "started_at": "2026-11-21 08:00+00",
        "completed_at": f"2026-11-21 08:{minutes:02}+00",
    }
    return RequestRow(**(values | overrides))  # type: ignore[arg-type] # overrides of its own fields


def test_equal_requests_are_one_group_with_oldest_age(
    debusine: Debusine,
) -> None:
    debusine.tables.add_requests(
        [
            RequestRow(7, AMD64, created_at=str(ELEVEN)),
            RequestRow(9, AMD64, created_at=str(TEN)),
            RequestRow(8, AMD64, created_at=str(ELEVEN)),
        ]
    )

    (request,) = debusine.demand().requests

    assert (request.id, request.count, request.pending_since) == ("9", 3, TEN)


def test_age_of_oldest_request_has_microseconds(debusine: Debusine) -> None:
    first = datetime(2037, 12, 31, 23, 59, 59, 999_997, tzinfo=UTC)
    later = [first.replace(microsecond=999_998), first.replace(microsecond=999_999)]
    times = {1: later[1], 2: first, 3: later[0]}
    debusine.tables.add_requests(
        [RequestRow(n, AMD64, created_at=str(t)) for n, t in times.items()]
    )

    (request,) = debusine.demand().requests

    assert (request.id, request.pending_since) == ("2", first)


def test_groups_are_in_order_of_debusines_scheduler(debusine: Debusine) -> None:
    debusine.tables.add_requests(
        [
            RequestRow(1, AMD64, created_at=str(ELEVEN)),
            RequestRow(2, (), created_at=str(TEN)),
            RequestRow(3, AMD64, priority=5, created_at=str(ELEVEN)),
        ]
    )

    assert [request.id for request in debusine.demand().requests] == ["3", "2", "1"]


@pytest.mark.parametrize(
    "other",
    [
        {"worker": 5},
        {"status": "running", "worker": 5},
        {"status": "blocked"},
        {"status": "completed"},
        {"task_type": "Server"},
        {"scope": "kali"},
    ],
)
def test_requests_of_other_scopes_or_states_are_not_counted(
    debusine: Debusine, other: dict[str, object]
) -> None:
    debusine.tables.add_requests([RequestRow(1), RequestRow(2, **other)])  # type: ignore[arg-type] # as above

    assert [(r.id, r.count) for r in debusine.demand().requests] == [("1", 1)]


def test_packages_without_matching_rule_form_one_group(debusine: Debusine) -> None:
    fleet = a_fleet(powerful=[{"match": "debian/builds/amd64/chromium", "ask": ["big"]}])
    debusine.tables.add_requests(
        [
            RequestRow(1, AMD64, of("hello")),
            RequestRow(2, AMD64, of("chromium")),
            RequestRow(3, AMD64, of("hello-again")),
            RequestRow(4, ("worker:build-arch:arm64",), of("chromium")),
        ]
    )

    found = [(r.id, r.count, r.package) for r in debusine.demand(fleet).requests]

    assert found == [("1", 2, None), ("2", 1, "chromium"), ("4", 1, None)]


def test_packages_with_same_rules_form_one_group(
    debusine: Debusine,
) -> None:
    fleet = a_fleet(powerful=[{"match": "debian/.*", "ask": ["big"]}])
    debusine.tables.add_requests(
        [RequestRow(n, AMD64, of(f"package-{n}"), workspace=f"w{n % 2}") for n in range(1, 6)]
    )

    (request,) = debusine.demand(fleet).requests

    assert (request.count, request.package, request.workspace) == (5, "package-1", "w1")


def test_tag_required_by_a_worker_separates_groups(debusine: Debusine) -> None:
    debusine.tables.add_requests(
        [RequestRow(1, AMD64, ("task:x", "task:y")), RequestRow(2, AMD64, ("task:y",))]
    )
    debusine.add_worker("w-1", static={"required_tags": ["task:x"]})

    found = {r.id: r.provided for r in debusine.demand().requests}

    assert found == {"1": ("task:x",), "2": ()}


def test_expected_seconds_are_median_of_equal_work(debusine: Debusine) -> None:
    debusine.tables.add_requests(
        [
            finished(1, 10),
            finished(2, 20),
            finished(3, 59, result="failure"),
            RequestRow(4, AMD64),
            RequestRow(5, ("worker:build-arch:arm64",)),
        ]
    )

    expected = {r.id: r.expected_seconds for r in debusine.demand().requests}

    assert expected == {"4": 15 * 60, "5": None}


def test_expected_seconds_are_of_same_package_when_known(debusine: Debusine) -> None:
    fleet = a_fleet(powerful=[{"match": "debian/.*/chromium", "ask": ["big"]}])
    debusine.tables.add_requests(
        [
            finished(1, 50, provided=of("chromium")),
            finished(2, 10, provided=of("hello")),
            RequestRow(3, AMD64, of("chromium")),
            RequestRow(4, AMD64, of("hello")),
        ]
    )

    expected = {r.id: r.expected_seconds for r in debusine.demand(fleet).requests}

    assert expected == {"3": 50 * 60, "4": 30 * 60}


def test_runs_have_machine_type_from_store(debusine: Debusine) -> None:
    fleet = a_fleet(durations={"sbuild": [{"match": "chromium|linux", "takes": "5h"}]})
    ours = {changes.FLEET: "debian-ci", changes.POOL: "builders"}
    small = debusine.add_worker("w-1", static=ours | {changes.MACHINE: "m-1"})
    big = debusine.add_worker("w-2", static=ours | {changes.MACHINE: "m-2"})
    theirs = debusine.add_worker("w-3", static={changes.FLEET: "other", changes.MACHINE: "m-1"})
    chromium, linux = of("chromium"), of("linux")
    debusine.tables.add_requests(
        [
            finished(1, 40, provided=chromium, worker=small, task="sbuild"),
            finished(2, 44, provided=chromium, worker=small, task="sbuild"),
            finished(3, 6, provided=chromium, worker=big, task="sbuild"),
            finished(4, 5, provided=chromium, worker=big, task="sbuild", result="failure"),
            finished(5, 5, provided=chromium, worker=theirs, task="sbuild"),
            finished(6, 5, provided=chromium, worker=None, task="sbuild"),
            finished(7, 9, provided=of("hello"), worker=big, task="sbuild"),
            finished(8, 50, provided=linux, worker=small, task="sbuild"),
            RequestRow(9, AMD64, chromium, task="sbuild"),
            RequestRow(10, AMD64, linux, task="sbuild", status="running", worker=big),
        ]
    )
    attempts = [made("m-1", "ccx33"), made("m-2", "ccx63")]

    demand = debusine.database(fleet, made=lambda: attempts).read(NOW).demand

    assert isinstance(demand, Demand)
    assert [(each.package, each.machine, each.seconds) for each in demand.runs] == [
        ("chromium", "ccx33", (2400, 2640)),
        ("chromium", "ccx63", (360,)),
        ("linux", "ccx33", (3000,)),
    ]


def test_running_work_has_expected_seconds_of_package(debusine: Debusine) -> None:
    fleet = a_fleet(powerful=[{"match": "debian/.*/chromium", "ask": ["big"]}])
    number = debusine.add_worker("w-1")
    debusine.tables.add_requests(
        [
            finished(1, 50, provided=of("chromium")),
            finished(2, 10, provided=of("hello")),
            RequestRow(3, AMD64, of("chromium"), status="running", worker=number),
        ]
    )

    work = debusine.workers(fleet)["w-1"].work

    assert work is not None
    assert work.expected_seconds == 50 * 60


def made(worker: str, kind: str) -> Attempt:
    return Attempt.model_validate(
        {
            "pool": "builders",
            "worker": worker,
            "type": kind,
            "image": "trixie-1",
            "at": "2026-11-01T00:00:00Z",
            "result": "registered",
        }
    )


def test_history_is_read_when_a_rule_uses_it(debusine: Debusine) -> None:
    rule = {"history": {"of": "memory", "min_runs": 2}, "ask": "memory_gib>={value}"}
    fleet = a_fleet(tags={"memory_gib": {"kind": "number"}}, derive=[rule])
    used = {"runtime_statistics": {"memory": 3 * 2**30 + 1, "disk_space": None}}
    debusine.tables.add_requests(
        [
            *(finished(n, 5, provided=of("linux"), output=used) for n in (1, 2)),
            finished(3, 5, provided=of("hello"), output=used),
            finished(4, 5, provided=of("linux"), output={"runtime_statistics": None}),
            RequestRow(5, AMD64, of("linux")),
            RequestRow(6, AMD64, of("hello")),
        ]
    )

    demand = debusine.demand(fleet)

    assert demand.history == (TaskHistory(task="noop", package="linux", memory_mib=(3073, 3073)),)
    assert [(r.id, r.package) for r in demand.requests] == [("5", "linux"), ("6", None)]


def test_environments_are_read_when_a_rule_looks_them_up(debusine: Debusine) -> None:
    rule = {"from": "environment_id", "lookup": "environments", "ask": "a:{value.architecture}"}
    looked_up = {
        "environment_id": 12,
        "task_input_fields": {
            "environment": {"artifact_id": 12, "data": {"architecture": "amd64"}}
        },
    }
    debusine.tables.add_requests([RequestRow(1, dynamic=looked_up), RequestRow(2)])

    demand = debusine.demand(a_fleet(derive=[rule]))

    assert demand.environments == {"12": {"architecture": "amd64"}}
    assert {r.id: r.task_data for r in demand.requests} == {"1": {"environment_id": 12}, "2": {}}


def looked_up(number: int, architecture: str | None) -> dict[str, object]:
    """Return what the server makes of task data; None: the record of the environment is gone."""
    data = {"artifact_id": number, "data": {"architecture": architecture}}
    fields = {} if architecture is None else {"task_input_fields": {"environment": data}}
    return {"environment_id": number, **fields}


@pytest.mark.parametrize("unknown", ["wait", "any"])
def test_requests_wait_when_their_environments_were_deleted(
    debusine: Debusine, unknown: str
) -> None:
    rule = {
        "from": "environment_id",
        "lookup": "environments",
        "ask": "worker:build-arch:{value.architecture}",
    }
    queue = {"kind": "debusine", "url": "http://x", "scopes": ["debian"]}
    fleet = a_fleet(derive=[rule], queues={"q": {**queue, "unknown_environment": unknown}})
    debusine.tables.add_requests(
        [
            RequestRow(1),
            RequestRow(2, dynamic=looked_up(12, "amd64")),
            RequestRow(3, dynamic=looked_up(13, None)),
            RequestRow(4, dynamic=looked_up(14, "amd64")),
            RequestRow(5, dynamic=looked_up(14, "arm64")),
            RequestRow(6, ("worker:build-arch:arm64",), dynamic=looked_up(13, None)),
            RequestRow(7, data={"environment_id": 15}),
        ]
    )

    demand = debusine.demand(fleet)

    judge = Judge(fleet, {}, NOW.date())
    told = context_of(fleet, "q", demand)
    held = {each.id for each in demand.requests if judge.ask_of_alike(each, told).held}
    assert held == ({"3", "4", "7"} if unknown == "wait" else set())
    # 4 and 5 are one group: no record says which of two the environment is.
    assert {each.id: each.count for each in demand.requests}["4"] == 2


def test_scope_missing_at_server_is_unknown(debusine: Debusine) -> None:
    debusine.tables.add_requests([RequestRow(1), RequestRow(2, scope="kali")])

    assert tells(debusine.why_unknown(None, "debain"), "debain", "debian", "kali")


def test_missing_right_of_role_is_named(debusine: Debusine) -> None:
    debusine.tables.add_requests([RequestRow(1)])
    debusine.tables.connection.execute(f"REVOKE ALL ON db_scope FROM {READER}".encode())

    assert tells(debusine.why_unknown(), "denied", "db_scope", "fleet debusine grants", "--check")


def test_demand_is_known_when_workers_are_unreadable(debusine: Debusine) -> None:
    debusine.tables.add_requests([RequestRow(1)])
    debusine.tables.connection.execute(f"REVOKE ALL ON db_token FROM {READER}".encode())

    reading = debusine.database().read(NOW)

    assert isinstance(reading.workers, Unknown)
    assert tells(reading.workers.unknown, "denied", "db_token")
    assert not isinstance(reading.demand, Unknown)


def test_workers_are_unknown_when_server_pools_are_unreadable(
    debusine: Debusine,
) -> None:
    debusine.tables.connection.execute(f"REVOKE ALL ON db_workerpool FROM {READER}".encode())

    workers = debusine.database().read(NOW).workers

    assert isinstance(workers, Unknown)
    assert tells(workers.unknown, "denied", "db_workerpool")


def test_pools_launched_by_server_are_rivals(debusine: Debusine) -> None:
    debusine.tables.add_pool(1, "theirs", {"instance_wide": True})

    assert debusine.database().read(NOW).rivals == ("theirs",)


def test_database_of_another_version_is_refused(debusine: Debusine) -> None:
    debusine.tables.connection.execute("ALTER TABLE db_worker ADD drained boolean")
    debusine.add_worker(
        "celery", worker_type="celery", dynamic={"system:worker_version": "0.17.0"}
    )

    said = debusine.why_unknown()

    assert re.search(r"\b(?!539c41736018)[0-9a-f]{12}\b", said)
    assert tells(said, "reports 0.17.0", "0.16.2 (539c41736018)")


def test_database_without_debusine_is_an_error(debusine: Debusine) -> None:
    debusine.tables.connection.execute("DROP TABLE db_workrequest")

    assert tells(debusine.why_unknown(), "no table", "db_workrequest")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresqlx//me:s3cret@host/debusine",
        "postgresql://me:s3cret@127.0.0.1:1/debusine",
        "postgresql://me:x@s3cret@host/debusine",
    ],
)
def test_unreachable_dsn_is_unknown_and_hides_password(debusine: Debusine, dsn: str) -> None:
    said = debusine.why_unknown(dsn=dsn)

    assert "s3cret" not in said
    assert len(said.split()) > 5


def test_tag_required_by_a_pool_is_read(debusine: Debusine) -> None:
    fleet = a_fleet(pools={"builders": a_pool(requires=["task:x"])})
    debusine.tables.add_requests([RequestRow(1, AMD64, ("task:x", "task:y"))])

    assert debusine.demand(fleet).requests[0].provided == ("task:x",)


@pytest.mark.parametrize("looked_at", [1, 59, 60, 61, 121])
def test_provided_tags_are_read_for_any_number_of_tags(debusine: Debusine, looked_at: int) -> None:
    tags = [f"task:t{number:03}" for number in range(looked_at)]
    pools = {"builders": a_pool(requires=tags)}
    brought = (tags[0], tags[-1])
    debusine.tables.add_requests([RequestRow(1, AMD64, provided=(*brought, "task:other"))])

    (request,) = debusine.demand(a_fleet(pools=pools)).requests

    assert request.provided == tuple(sorted(set(brought)))
