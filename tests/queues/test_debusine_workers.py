"""Workers over SQL: what each is doing, as the database says and not as the status page does."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.model.facts import Unknown, WorkerState
from fleet.queues.debusine import changes
from tests.builders import a_fleet
from tests.queues.conftest import Debusine
from tests.rigs.debusine import NOW
from tests.rigs.debusine_tables import RequestRow

OURS = {changes.FLEET: "debian-ci", changes.MACHINE: "m-1", changes.POOL: "builders"}
TOLD = {"provided_tags": ["worker:build-arch:amd64", "worker:class:big", "worker:cap:sbuild"]}
TEN = datetime(2026, 11, 21, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({}, WorkerState.IDLE),
        ({"heard": "now() - interval '64 minutes'"}, WorkerState.IDLE),
        ({"heard": "now() - interval '66 minutes'"}, WorkerState.DEAF),
        ({"heard": "NULL"}, WorkerState.DEAF),
        ({"connected": "NULL"}, WorkerState.DISCONNECTED),
        ({"access": "off"}, WorkerState.DISABLED),
        ({"access": "expired"}, WorkerState.DISABLED),
        ({"access": "awaited"}, WorkerState.ENROLLED),
        ({"access": "revoked"}, WorkerState.DISABLED),
    ],
)
def test_state_of_free_worker_follows_connection_and_token(
    debusine: Debusine, row: dict[str, Any], state: WorkerState
) -> None:
    debusine.add_worker("w-1", **row)

    assert debusine.workers()["w-1"].state is state


def test_worker_with_running_request_is_busy_and_absent_when_offline(
    debusine: Debusine,
) -> None:
    number = debusine.add_worker("w-1", connected="NULL")
    debusine.tables.add_requests(
        [
            RequestRow(
                41,
                ("worker:build-arch:amd64",),
                status="running",
                worker=number,
                started_at=str(TEN),
                submitter=7,
                task="sbuild",
            )
        ]
    )

    worker = debusine.workers()["w-1"]

    assert (worker.state, worker.running, worker.since) == (WorkerState.BUSY, "41", TEN)
    assert (worker.away, worker.stranded, worker.connected_since) == (True, False, None)
    assert worker.work is not None
    assert worker.work.model_dump(exclude_none=True) == {
        "task": "sbuild",
        "required": ("worker:build-arch:amd64",),
        "started_at": TEN,
        "requester": "7",
        "scope": "debian",
        "workspace": "builds",
    }


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        ({"required": ("worker:build-arch:arm64",)}, "debian/builds/arm64/chromium"),
        ({"data": {"build_architecture": "riscv64"}}, "debian/builds/riscv64/chromium"),
        ({"data": {"build_components": ["source"]}}, "debian/builds/source/chromium"),
        ({"dynamic": {"host_architecture": "i386"}}, "debian/builds/i386/chromium"),
        ({}, "debian/builds/any/chromium"),
    ],
)
def test_work_has_names_of_its_waiting_request(
    debusine: Debusine, request_: dict[str, Any], name: str
) -> None:
    number = debusine.add_worker("w-1")
    row = RequestRow(41, provided=("task:source-package:chromium",), task="sbuild", **request_)
    debusine.tables.add_requests([replace(row, status="running", worker=number)])

    work = debusine.workers()["w-1"].work

    assert work is not None
    assert (work.package, work.names) == ("chromium", (name,))


@pytest.mark.parametrize("token", ["off", "expired", "revoked"])
def test_request_of_worker_without_valid_token_is_stranded(debusine: Debusine, token: str) -> None:
    number = debusine.add_worker("w-1", access=token)
    debusine.tables.add_requests([RequestRow(41, status="running", worker=number)])

    worker = debusine.workers()["w-1"]

    assert (worker.state, worker.running) == (WorkerState.DISABLED, "41")
    assert (worker.stranded, worker.away, worker.connected_since) == (True, False, None)


def test_worker_has_time_of_connection(debusine: Debusine) -> None:
    debusine.add_worker("w-1", connected=f"'{TEN}'")

    assert debusine.workers()["w-1"].connected_since == TEN


def test_worker_with_assigned_request_is_busy_before_start(
    debusine: Debusine,
) -> None:
    number = debusine.add_worker("w-1")
    debusine.tables.add_requests([RequestRow(41, worker=number)])

    assert debusine.workers()["w-1"].state is WorkerState.BUSY


def test_running_request_precedes_assigned_one(debusine: Debusine) -> None:
    number = debusine.add_worker("w-1")
    debusine.tables.add_requests(
        [RequestRow(41, worker=number), RequestRow(42, worker=number, status="running")]
    )

    assert debusine.workers()["w-1"].running == "42"


def test_worker_of_this_fleet_has_its_machine_and_pool(debusine: Debusine) -> None:
    debusine.add_worker("w-1", static=OURS)

    worker = debusine.workers()["w-1"]

    assert (worker.machine, worker.pool, worker.static) == ("m-1", "builders", False)


@pytest.mark.parametrize(
    "theirs", [{}, OURS | {changes.FLEET: "debian-ci-0002"}, {changes.FLEET: 5}]
)
def test_worker_of_another_owner_is_static(debusine: Debusine, theirs: dict[str, object]) -> None:
    debusine.add_worker("w-1", static=theirs)

    worker = debusine.workers()["w-1"]

    assert (worker.machine, worker.pool, worker.static) == (None, None, True)


def test_tags_of_worker_equal_those_of_debusine(debusine: Debusine) -> None:
    written = {"provided_tags": ["worker:class:huge"], "required_tags": ["task:scope:debian"]}
    debusine.add_worker("w-1", static=written, dynamic=TOLD)

    worker = debusine.workers()["w-1"]

    assert worker.provides == (
        *("worker:build-arch:amd64", "worker:cap:sbuild", "worker:class:huge"),
        "worker:type:external",
    )
    assert worker.requires == ("task:scope:debian",)


def test_silent_worker_provides_only_known_tags(
    debusine: Debusine,
) -> None:
    written = OURS | {"provided_tags": ["worker:class:huge"], "required_tags": ["task:x"]}
    debusine.add_worker("w-1", static=written, dynamic={}, heard="NULL", access="awaited")

    worker = debusine.workers()["w-1"]

    assert (worker.provides, worker.requires) == ((), ())


@pytest.mark.parametrize(("allowed", "drains"), [([], True), (["sbuild"], False), (None, False)])
def test_worker_that_accepts_no_task_is_draining(
    debusine: Debusine, allowed: list[str] | None, *, drains: bool
) -> None:
    debusine.add_worker("w-1", static=OURS | {changes.TASKS_ALLOWLIST: allowed})

    assert debusine.workers()["w-1"].draining is drains


def test_unregistered_worker_has_expiry_of_its_token(debusine: Debusine) -> None:
    debusine.add_worker("w-1", static=OURS, access="awaited", expires="2026-11-21 12:00+00")

    assert debusine.workers()["w-1"].token_expires == datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_uses_exclude_requests_of_earlier_machine(debusine: Debusine) -> None:
    number = debusine.add_worker("w-1", static=OURS, registered="'2026-11-21 09:00+00'")
    for id_, ended in ((1, "2026-11-21 08:59+00"), (2, str(TEN)), (3, "2026-11-21 09:30+00")):
        debusine.tables.add_requests(
            [RequestRow(id_, status="completed", worker=number, completed_at=ended)]
        )

    worker = debusine.workers()["w-1"]

    assert (worker.uses, worker.since) == (2, TEN)


def test_unused_worker_is_idle_since_connection(
    debusine: Debusine,
) -> None:
    debusine.add_worker("w-1", connected=f"'{TEN}'")

    assert debusine.workers()["w-1"].since == TEN


def test_only_external_workers_are_listed(debusine: Debusine) -> None:
    debusine.add_worker("celery", worker_type="celery")
    debusine.add_worker("w-1")

    assert list(debusine.workers()) == ["w-1"]


def test_registry_is_empty_without_workers(debusine: Debusine) -> None:
    reading = debusine.database(a_fleet()).read(NOW)

    assert reading.workers == ()
    assert isinstance(reading.demand, Unknown)
