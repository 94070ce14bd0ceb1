"""The contract of Server, run over the fake and a recorded Debusine."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from fleet.errors import SourceUnreachable
from fleet.model.doctor import Machinery
from fleet.ports import Server
from fleet.queues.debusine.checkup import DebusineServer
from fleet.schema.model import DebusineQueue
from tests.fakes.server import AMD64, NOON, FakeServer
from tests.rigs.debusine import STATUS
from tests.rigs.loopback import Answer, Loopback, html
from tests.rigs.replay import TOKEN, Replay, read_exchange

RECORDED = ("service-status", "open-metrics-work-requests", "whoami-fleet")


@dataclass(frozen=True)
class Example:
    """One kind of server: up, asked with a wrong token, and down."""

    up: Server
    refusing: Server
    down: Server


def _queue(url: str) -> DebusineQueue:
    return DebusineQueue(kind="debusine", url=url, scopes=["debian"])


def _fake(_: ExitStack) -> Example:
    return Example(FakeServer(), FakeServer(refuses="status 403"), FakeServer(broken="down"))


def _debusine(stack: ExitStack) -> Example:
    server = stack.enter_context(Replay(*RECORDED))
    refusing = stack.enter_context(Loopback(lambda _: Answer(403, b"")))
    with Loopback(lambda _: html()) as gone:
        down = gone.url
    return Example(
        DebusineServer(_queue(server.url), TOKEN, now=lambda: NOON),
        DebusineServer(_queue(refusing.url), "made-up-wrong-token"),
        DebusineServer(_queue(down), TOKEN),
    )


@pytest.fixture(params=[_fake, _debusine], ids=["fake", "debusine"])
def example(request: pytest.FixtureRequest) -> Iterator[Example]:
    make: Callable[[ExitStack], Example] = request.param
    with ExitStack() as stack:
        yield make(stack)


def test_token_is_sent_only_to_read_its_user() -> None:
    with Replay(*RECORDED) as replay:
        server = DebusineServer(_queue(replay.url), TOKEN)
        architectures = server.summary().architectures
        server.counts()
        server.user()
        sent = [received.headers.get("token") for received in replay.received]
        replay.faults.instead[STATUS] = Answer(200, b"{}")
        with pytest.raises(SourceUnreachable, match="external_workers_arch"):
            server.summary()
    anonymous = read_exchange("whoami-anonymous").answer
    with Loopback(lambda _: anonymous) as other:
        assert DebusineServer(_queue(other.url), TOKEN).user() == ""

    assert sent == [None, None, TOKEN]
    # Work without an architecture.
    assert architectures["any"] == Machinery(running=0, pending=24)
    assert "None" not in architectures


def test_server_returns_its_workers_user_and_counts(example: Example) -> None:
    assert example.up.summary().architectures["amd64"] == AMD64
    assert example.up.summary().asked_at == NOON
    assert example.up.user() == "fleet"
    assert example.up.counts() == {"debian": 29}


def test_refusing_or_unreachable_server_is_an_error(example: Example) -> None:
    with pytest.raises(SourceUnreachable, match="403"):
        example.refusing.user()
    for ask in (example.down.summary, example.down.user, example.down.counts):
        with pytest.raises(SourceUnreachable):
            ask()


@pytest.mark.parametrize(
    ("told", "time"),
    [
        ("Sat, 21 Nov 2026 12:34:56 GMT", datetime(2026, 11, 21, 12, 34, 56, tzinfo=UTC)),
        *((wrong, None) for wrong in ("", "yesterday", "Sat, 21 Nov 2026 12:34:56 -0000")),
    ],
)
def test_server_time_is_of_its_date_header(told: str, time: datetime | None) -> None:
    status = read_exchange("service-status").answer
    answer = Answer(200, status.body, {**status.headers, "Date": told})
    with Loopback(lambda _: answer) as server:
        assert DebusineServer(_queue(server.url), TOKEN).summary().server_time == time
