"""That a server that refuses, lies or is down gives Unknown, and why.

tests/faults/test_queues.py has what a plan makes of it.
"""

from collections.abc import Iterator
from itertools import count

import pytest

from fleet.model.facts import Unknown
from fleet.queues.debusine.rest import DebusineRest
from fleet.schema.model import DebusineQueue
from tests.builders.sentences import tells
from tests.rigs.debusine import (
    LIST,
    METRICS,
    NO_ROWS,
    NOW,
    STATUS,
    one_page,
    read_demand,
    row,
    why_unknown,
)
from tests.rigs.loopback import Answer, Loopback, html, redirect, since
from tests.rigs.replay import PENDING, TOKEN, Replay, read_exchange

NEW_TOKEN = "debusine-admin create_token USER"


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay(*PENDING, "open-metrics-work-requests") as replay:
        yield replay


def test_next_page_link_provides_only_the_cursor(server: Replay) -> None:
    read_demand(server.url)

    assert "127.0.0.1:18080" in read_exchange(PENDING[0]).answer.body.decode()
    assert [received.query.get("cursor") for received in server.received[:3]] == [
        None,
        "cD0yMDI2LTExLTIxKzAwJTNBMTQlM0E0My4zMjk1NTAlMkIwMCUzQTAw",
        "cD0yMDI2LTExLTIxKzAwJTNBMTQlM0EzMy42MzU3NjUlMkIwMCUzQTAw",
    ]


def test_redirect_is_not_followed(server: Replay) -> None:
    with Loopback(lambda _: one_page()) as other:
        server.faults.instead[LIST] = redirect(other.url + "/?token=canary")

        unknown = why_unknown(server.url)

    assert other.received == []
    assert tells(unknown, "redirects", "127.0.0.1")
    assert "canary" not in unknown


def test_public_queries_send_no_token() -> None:
    with Replay("wr-list-outsider", "service-status") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        why_unknown(server.url)
        sent = {received.path: received.headers.get("token") for received in server.received}

    assert sent == {LIST: TOKEN, STATUS: None, METRICS: None}


@pytest.mark.parametrize("token", ["canary\nX-Evil: yes", "canäry"])
def test_unsendable_token_is_refused_without_showing_it(server: Replay, token: str) -> None:
    unknown = why_unknown(server.url, token=token)

    assert tells(unknown, "characters", "HTTP")
    assert token[:6] not in unknown
    assert server.received == []


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (redirect("/login"), (LIST, "redirects", "another path")),
        (redirect("http://[nonsense"), (LIST, "redirects", "another path")),
        ("wr-list-bad-token", (LIST, "403", NEW_TOKEN)),
        ("wr-list-worker-token", (LIST, "token", "user's", NEW_TOKEN)),
        ("wr-list-unknown-scope", ("404", "scope debian")),
        ("wr-list-invalid-status", ("status 400: ",)),
        (html(), ("HTML", "JSON")),
        (html(500), ("status 500: ",)),
    ],
)
def test_refused_list_is_unknown_demand_with_advice(
    server: Replay, answer: Answer | str, words: tuple[str, ...]
) -> None:
    known = read_exchange(answer).answer if isinstance(answer, str) else answer
    server.faults.instead[LIST] = known

    assert tells(why_unknown(server.url), *words)


def test_missing_token_is_unknown_with_advice(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-no-token").answer

    assert tells(why_unknown(server.url, token=None), "`token`", "fleet.yaml")
    assert "token" not in server.received[0].headers


def test_other_server_than_debusine_is_unknown_demand() -> None:
    with Loopback(lambda _: Answer(200, NO_ROWS)) as server:
        server.faults.instead[STATUS] = html(404)

        assert tells(why_unknown(server.url), STATUS, "404", "Debusine")


def test_closed_connection_is_retried(server: Replay) -> None:
    server.faults.drop = {2}

    assert len(read_demand(server.url).requests) == 27


@pytest.mark.parametrize(("fault", "word"), [("drop", "closed"), ("truncate", "broke off")])
def test_broken_connections_are_unknown_demand(server: Replay, fault: str, word: str) -> None:
    setattr(server.faults, fault, since(2))

    assert tells(why_unknown(server.url), word)
    assert len(server.received) == 4


def test_silent_or_unreachable_server_is_unknown_demand(server: Replay) -> None:
    server.faults.hold = True
    with Loopback(lambda _: one_page()) as gone:
        pass

    assert tells(why_unknown(server.url, silence=0.6), "0.6 s")
    assert tells(why_unknown(gone.url), gone.url, "Connection refused")


def test_reading_beyond_its_time_limit_is_stopped(server: Replay) -> None:
    seconds = count(step=100)
    queue = DebusineQueue(kind="debusine", url=server.url, scopes=["debian"])

    reading = DebusineRest(queue, TOKEN, max_age=300, clock=lambda: next(seconds)).read(NOW)

    assert isinstance(reading.demand, Unknown)
    assert tells(reading.demand.unknown, "300 s")
    assert "guards.demand_max_age" in reading.demand.unknown


BODY = '{"next": %s, "previous": null, "results": %s}'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "Invalid JSON"),
        ("[]", "Input should be an object"),
        ("{}", "at next: Field required"),
        ("[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (BODY % (5, "[]"), "at next: Input should be a valid string"),
        (BODY % ("null", "[{}]"), "at results.0.id: Field required"),
        (one_page(row(), next_page="http://else.example/?cursor=again"), "after 2 pages"),
        (one_page(row(), next_page="/?page=2"), "cursor"),
        (one_page(row(priority_base="canary")), "unexpected answer at"),
        (one_page(row(), next_page="http://[nonsense"), "cursor"),
        *(
            (one_page(row(**other)), "in scope debian;")
            for other in ({"status": "running"}, {"scope": "kali"}, {"task_type": "Signing"})
        ),
        *(
            (one_page({k: v for k, v in row().items() if k != key}), f"0.{key}: Field required")
            for key in ("worker", "scheduler_tags_required", "priority_base", "scope")
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "page",
)
def test_invalid_response_is_unknown_with_place(body: str | Answer, words: str) -> None:
    answer = Answer(200, body.encode()) if isinstance(body, str) else body
    with Loopback(lambda _: answer) as server:
        unknown = why_unknown(server.url)

    assert words in unknown
    assert "canary" not in unknown
