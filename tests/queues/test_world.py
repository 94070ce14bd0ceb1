"""How a recorded world is read, and what is said of one that cannot be."""

import json
from datetime import UTC, datetime

import pytest

from fleet.errors import FileUnreadable
from fleet.model.facts import Demand, QueueReading, Request, Unknown, Worker, WorkerState, World
from fleet.queues.recorded import RecordedQueue, read_world
from fleet.schema import model
from tests.builders.sentences import tells
from tests.fakes.queue import FakeFiles

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
BEFORE = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
WORKER = Worker(name="builder-1", state=WorkerState.IDLE)
READING = QueueReading(
    demand=Demand(read_at=BEFORE, requests=(Request(id="1"),), estimate=True), workers=(WORKER,)
)


def _files(**queues: QueueReading) -> FakeFiles:
    world = World(fleet="demo", time=BEFORE, queues=queues)
    return FakeFiles({"world.json": world.model_dump_json().encode()})


def _read(files: FakeFiles, name: str | None = None) -> QueueReading:
    queue = model.WorldQueue(kind="world", path="world.json", queue=name)
    return RecordedQueue(queue, files).read(NOW)


def _why_unreadable(content: bytes) -> str:
    with pytest.raises(FileUnreadable) as unreadable:
        read_world("world.json", FakeFiles({"world.json": content}))
    return str(unreadable.value)


def _why_not(**keys: object) -> str:
    world = {"fleet": "demo", "time": "2026-11-21T08:00:00Z"} | keys
    return _why_unreadable(json.dumps(world).encode())


# a queue out of a recording


def test_recording_has_current_time_of_reading() -> None:
    demand = _read(_files(debian=READING)).demand

    assert demand == Demand(read_at=NOW, requests=(Request(id="1"),), estimate=True)


def test_recorded_workers_form_the_registry() -> None:
    assert _read(_files(debian=READING)).workers == (WORKER,)


def test_recorded_unknown_stays_unknown() -> None:
    unknown = QueueReading(demand=Unknown(unknown="the server was down"), workers=None)

    assert _read(_files(debian=unknown)) == unknown


def test_one_queue_of_several_is_chosen_by_name() -> None:
    other = QueueReading(demand=Demand(read_at=BEFORE), workers=())

    assert _read(_files(debian=READING, kali=other), "debian").workers == (WORKER,)


def test_several_queues_without_a_choice_are_unknown_and_named() -> None:
    reading = _read(_files(kali=READING, debian=READING))

    assert isinstance(reading.demand, Unknown)
    assert reading.demand.unknown.startswith("world.json ")
    assert "(debian, kali)" in reading.demand.unknown


def test_unrecorded_queue_is_unknown() -> None:
    demand = _read(_files(debian=READING), "kali").demand

    assert isinstance(demand, Unknown)
    assert tells(demand.unknown, "world.json", "queue kali", "debian")


def test_workers_are_unknown_when_recording_is_unreadable() -> None:
    reading = _read(FakeFiles({}))

    assert reading.demand == reading.workers == Unknown(unknown="world.json: no such file")


# the file


def test_world_round_trips() -> None:
    world = World(fleet="demo", time=BEFORE, queues={"debian": READING})

    assert read_world("w", FakeFiles({"w": world.model_dump_json().encode()})) == world


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "world.json:1:0: not JSON: EOF while parsing a value"),
        (b'{\n  "fleet": demo}', "world.json:2:12: not JSON: expected value"),
        (b"\xff\xfe\x00", "world.json:1:1: not JSON: expected value"),
        (b"[" * 1_000_000, "world.json:1:202: not JSON: recursion limit exceeded"),
    ],
)
def test_invalid_json_is_refused_with_place(content: bytes, message: str) -> None:
    assert _why_unreadable(content) == message


def test_recording_of_another_format_is_refused() -> None:
    assert tells(
        _why_not(format="fleet-world-9"),
        "world.json: $.format",
        "fleet-world-1",
        "fleet observe --out FILE",
    )


def test_non_object_is_refused() -> None:
    assert tells(_why_unreadable(b"[]"), "world.json: $", "object")


def test_error_names_path_of_missing_key() -> None:
    assert tells(_why_unreadable(b"{}"), "world.json", "fleet-world-1", "$.fleet", "$.time")


def test_error_names_path_of_nested_fault() -> None:
    demand = {"read_at": "2026-11-21T08:00:00Z", "requests": [{"id": 5, "prio": 1}]}

    assert tells(
        _why_not(queues={"debian": {"demand": demand}}),
        "$.queues.debian.demand.requests[0].id",
        "$.queues.debian.demand.requests[0].prio",
    )


def test_error_inside_unknown_is_reported_alone() -> None:
    demand = {"unknown": 5}

    assert tells(
        _why_not(queues={"debian": {"demand": demand}}),
        "fleet-world-1",
        "$.queues.debian.demand.unknown",
    )


def test_time_without_its_zone_is_refused() -> None:
    assert tells(_why_not(time="2026-11-21T08:00:00"), "$.time")


def test_error_lists_only_first_faults() -> None:
    many = {f"extra{number}": 1 for number in range(9)}

    assert tells(_why_not(**many), "$.extra2", "6 more")
