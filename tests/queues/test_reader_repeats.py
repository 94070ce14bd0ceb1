"""A GET that a server cannot answer just now is sent again: how often, when, and what is told."""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Literal

import pytest

from fleet.errors import SourceUnreachable
from fleet.observation import Observation, observing
from fleet.queues.http import Reader, ReadLimits
from tests.rigs.loopback import Answer, Loopback, Received, since

PLAIN = {"Content-Type": "text/plain"}
WELL = Answer(200, b"well", PLAIN)


def badly(
    status: int, times: int | None = None, headers: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Received], Answer]:
    """Answer with this status so many times, then well; None: always with the status."""
    counted = count(1)
    bad = Answer(status, b"busy", PLAIN | dict(headers))
    return lambda _: bad if times is None or next(counted) <= times else WELL


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses before each GET that is sent again."""
    slept: list[float] = []
    monkeypatch.setattr(Reader, "pause", staticmethod(slept.append))
    return slept


@pytest.fixture
def observation() -> Iterator[Observation]:
    with observing(Observation()) as observation:
        yield observation


def test_change_is_sent_once_when_reset_or_overloaded(pauses: list[float]) -> None:
    for fault in ("drop", "truncate"):
        with Loopback(lambda _: WELL) as server, Reader(server.url) as reader:
            setattr(server.faults, fault, since(1))
            with pytest.raises(SourceUnreachable):
                reader.change("POST", "/", {}, None)
        assert len(server.received) == 1
    methods: tuple[Literal["POST", "PUT", "DELETE"], ...] = ("POST", "PUT", "DELETE")
    with Loopback(badly(503)) as server, Reader(server.url) as reader:
        assert [reader.change(each, "/", {}, None).status for each in methods] == [503] * 3

    assert (len(server.received), pauses) == (3, [])


def test_pauses_grow_and_differ_between_clients(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", max)

    with Loopback(badly(502)) as server, Reader(server.url) as reader:
        reader.get("/", {}, {})
        monkeypatch.setattr(random, "uniform", min)
        reader.get("/", {}, {})

    first, second, low_first, low_second = pauses
    assert 0 < low_first < first < second
    assert low_second < second


def test_observation_notes_each_server_once(observation: Observation) -> None:
    with Loopback(badly(502, 2)) as first, Loopback(badly(429, 1)) as second:
        for server in (first, second):
            with Reader(server.url) as reader:
                reader.get("/a", {}, {"Token": "canary"})
                reader.get("/b", {}, {"Token": "canary"})

    notes = observation.remarks()
    assert len(notes) == 2
    assert {each.split()[0] for each in notes} == {first.url, second.url}
    assert not any("canary" in each for each in notes)


@pytest.mark.usefixtures("observation")
def test_server_is_not_queried_again_when_it_never_responded() -> None:
    with Loopback(lambda _: WELL) as server:
        server.faults.hold = True
        with (
            Reader(server.url, limits=ReadLimits(silence=0.1)) as reader,
            pytest.raises(SourceUnreachable),
        ):
            reader.get("/list", {}, {})
        with (
            Reader(server.url) as other,
            pytest.raises(SourceUnreachable, match=r"/prices was not asked.*0\.1 s"),
        ):
            other.get("/prices", {}, {})

    assert [each.path for each in server.received] == ["/list"]


def test_observation_ends_all_its_readings_together() -> None:
    with (
        observing(Observation(0)),
        Loopback(lambda _: WELL) as server,
        Reader(server.url) as reader,
        pytest.raises(SourceUnreachable, match="not read within"),
    ):
        reader.get("/", {}, {})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_get_is_sent_three_times_when_a_server_is_busy(status: int, pauses: list[float]) -> None:
    for times, answer in ((2, 200), (None, status)):
        with Loopback(badly(status, times)) as server, Reader(server.url) as reader:
            assert reader.get("/", {}, {}).status == answer
        assert len(server.received) == 3

    assert len(pauses) == 4


@pytest.mark.parametrize("fault", ["drop", "truncate"])
def test_get_is_sent_three_times_when_connections_are_reset(
    fault: str, pauses: list[float]
) -> None:
    with Loopback(lambda _: WELL) as server, Reader(server.url) as reader:
        setattr(server.faults, fault, {1, 2})
        assert reader.get("/", {}, {}).body == b"well"
        setattr(server.faults, fault, since(4))
        with pytest.raises(SourceUnreachable):
            reader.get("/", {}, {})

    assert (len(server.received), len(pauses)) == (6, 4)


DATED = {"Date": "Sat, 21 Nov 2026 12:00:00 GMT"}
ONCE: dict[str, tuple[int, dict[str, str], dict[str, Any]]] = {
    **{f"status {status}": (status, {}, {}) for status in (400, 401, 403, 404, 500, 501)},
    **{
        f"wait {len(after)} {after[:12]}": (429, DATED | {"Retry-After": after}, {})
        for after in (
            "31",
            "999999999",
            "9999999999",
            "9" * 5_000,
            "Sat, 21 Nov 2026 12:01:00 GMT",
        )
    },
    "the caller repeats itself": (503, {}, {"tries": 1}),
    "the reading ends before": (503, {"Retry-After": "6"}, {"limits": ReadLimits(total=5)}),
    "the observation ends before": (503, {"Retry-After": "6"}, {}),
    "it took long": (504, {}, {"clock": count(step=16).__next__}),
}


@pytest.mark.parametrize("case", ONCE)
def test_get_is_sent_once_when_a_repeat_cannot_help(case: str, pauses: list[float]) -> None:
    status, headers, more = ONCE[case]

    with (
        observing(Observation(5 if case == "the observation ends before" else 999)),
        Loopback(badly(status, headers=headers)) as server,
        Reader(server.url, **more) as reader,
    ):
        assert reader.get("/", {}, {}).status == status

    assert (len(server.received), pauses) == (1, [])


@pytest.mark.parametrize(
    ("after", "least"),
    [
        *(("0", 0.0), ("30", 30.0), (" 2 ", 2.0), ("soon", 0.0), ("-5", 0.0), ("1e9", 0.0)),
        ("Sat, 21 Nov 2026 12:00:07 GMT", 7.0),
        ("Sat, 21 Nov 2026 11:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_kept_when_it_is_short(
    after: str, least: float, pauses: list[float]
) -> None:
    busy = badly(429, 1, headers=DATED | {"Retry-After": after})
    with Loopback(busy) as server, Reader(server.url) as reader:
        assert reader.get("/", {}, {}).status == 200

    (pause,) = pauses
    assert least < pause <= least + 1


@pytest.mark.usefixtures("observation")
def test_server_is_queried_again_when_it_has_responded() -> None:
    def answer(received: Received) -> Answer:
        return WELL if received.path == "/list" else Answer(503, b"", PLAIN)

    with Loopback(answer) as server, Reader(server.url) as reader:
        paths = ("/list", "/metrics", "/list")
        assert [reader.get(path, {}, {}).status for path in paths] == [200, 503, 200]
    with Loopback(badly(429)) as server, Reader(server.url) as reader:
        assert [reader.get("/", {}, {}).status for _ in range(2)] == [429, 429]
