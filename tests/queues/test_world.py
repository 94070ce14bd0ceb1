"""How a recorded world is read, and what is said of one that cannot be."""

import json
from datetime import UTC, datetime

import pytest

from fleet.errors import FileUnreadable
from fleet.model.facts import Demand, QueueReading, Request, Unknown, Worker, WorkerState, World
from fleet.queues.recorded import RecordedQueue, read_world
from fleet.schema import model
from tests.builders.sentences import tells
from tests.fakes.files import FakeFiles

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


def test_recording_is_read_with_current_time() -> None:
    unknown = QueueReading(demand=Unknown(unknown="the server was down"), workers=None)
    world = World(fleet="demo", time=BEFORE, queues={"debian": READING})

    reading, absent = _read(_files(debian=READING)), _read(FakeFiles({}))

    assert read_world("w", FakeFiles({"w": world.model_dump_json().encode()})) == world
    assert reading.demand == Demand(read_at=NOW, requests=(Request(id="1"),), estimate=True)
    assert reading.workers == (WORKER,)
    assert _read(_files(debian=unknown)) == unknown
    assert _read(_files(debian=READING, kali=unknown), "debian").workers == (WORKER,)
    assert isinstance(absent.demand, Unknown)
    assert absent.workers == absent.demand
    assert tells(absent.demand.unknown, "world.json")


@pytest.mark.parametrize(
    ("queues", "name", "words"),
    [
        (("kali", "debian"), None, ("world.json", "(debian, kali)")),
        (("debian",), "kali", ("world.json", "queue kali", "debian")),
    ],
)
def test_queue_is_unknown_unless_one_is_chosen(
    queues: tuple[str, ...], name: str | None, words: tuple[str, ...]
) -> None:
    demand = _read(_files(**dict.fromkeys(queues, READING)), name).demand

    assert isinstance(demand, Unknown)
    assert tells(demand.unknown, *words)


ODD = {"read_at": "2026-11-21T08:00:00Z", "requests": [{"id": 5, "prio": 1}]}
WRONG = "$.queues.debian.demand"


@pytest.mark.parametrize(
    ("world", "words"),
    [
        ([], ("world.json: $", "object")),
        ({"fleet": None, "time": None}, ("world.json", "fleet-world-1", "$.fleet", "$.time")),
        (
            {"format": "fleet-world-9"},
            ("world.json: $.format", "fleet-world-1", "fleet observe --out FILE"),
        ),
        (
            {"queues": {"debian": {"demand": ODD}}},
            (f"{WRONG}.requests[0].id", f"{WRONG}.requests[0].prio"),
        ),
        ({"queues": {"debian": {"demand": {"unknown": 5}}}}, (f"{WRONG}.unknown",)),
        ({"time": "2026-11-21T08:00:00"}, ("$.time",)),
        ({f"extra{number}": 1 for number in range(9)}, ("$.extra2", "6 more")),
    ],
)
def test_invalid_recording_is_refused_with_paths(world: object, words: tuple[str, ...]) -> None:
    usual = {"fleet": "demo", "time": "2026-11-21T08:00:00Z"}
    said = usual | world if isinstance(world, dict) else world
    if isinstance(said, dict):
        said = {key: value for key, value in said.items() if value is not None}

    assert tells(_why_unreadable(json.dumps(said).encode()), *words)
