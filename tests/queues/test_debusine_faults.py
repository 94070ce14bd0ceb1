"""That a server that refuses, lies or is down gives Unknown, and why."""

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


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay(*PENDING, "open-metrics-work-requests") as replay:
        yield replay


# the token stays with its server


def test_next_page_link_provides_only_the_cursor(server: Replay) -> None:
    recorded_host = "127.0.0.1:18080"

    read_demand(server.url)

    assert recorded_host in read_exchange(PENDING[0]).answer.body.decode()
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


def test_redirect_within_server_is_an_error(server: Replay) -> None:
    server.faults.instead[LIST] = redirect("/login")

    assert tells(why_unknown(server.url), LIST, "redirects", "another path")


def test_invalid_redirect_is_an_error(server: Replay) -> None:
    server.faults.instead[LIST] = redirect("http://[nonsense")

    assert tells(why_unknown(server.url), LIST, "redirects", "another path")


def test_public_queries_send_no_token() -> None:
    with Replay("wr-list-outsider", "service-status") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        why_unknown(server.url)
        sent = {received.path: received.headers.get("token") for received in server.received}

    assert sent == {LIST: TOKEN, STATUS: None, METRICS: None}


def test_token_with_a_line_break_is_refused_without_showing_it(server: Replay) -> None:
    unknown = why_unknown(server.url, token="canary\nX-Evil: yes")

    assert tells(unknown, "characters", "HTTP")
    assert "canary" not in unknown
    assert server.received == []


def test_token_outside_ascii_is_refused_without_showing_it(server: Replay) -> None:
    unknown = why_unknown(server.url, token="canäry")

    assert tells(unknown, "characters", "HTTP")
    assert "canäry" not in unknown


# a server that refuses, lies or is down


def test_wrong_token_is_unknown_with_advice(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-bad-token").answer

    assert tells(
        why_unknown(server.url), f"{server.url}{LIST}", "403", "debusine-admin create_token USER"
    )


def test_token_of_a_worker_gives_unknown_demand(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-worker-token").answer

    assert tells(
        why_unknown(server.url), LIST, "token", "user's", "debusine-admin create_token USER"
    )


def test_missing_token_is_unknown_with_advice(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-no-token").answer

    assert tells(why_unknown(server.url, token=None), "`token`", "fleet.yaml")
    assert "token" not in server.received[0].headers


def test_unknown_scope_is_unknown_demand(
    server: Replay,
) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-unknown-scope").answer

    assert tells(why_unknown(server.url, scopes=("nosuch",)), "404", "scope nosuch")


def test_refused_query_is_unknown_demand(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-invalid-status").answer

    assert "status 400: " in why_unknown(server.url)


def test_html_instead_of_json_is_unknown_demand(server: Replay) -> None:
    server.faults.instead[LIST] = html()

    assert tells(why_unknown(server.url), "HTML", "JSON")


def test_failing_server_is_unknown_demand(server: Replay) -> None:
    server.faults.instead[LIST] = html(500)

    assert "status 500: " in why_unknown(server.url)


def test_truncated_response_is_unknown_demand(server: Replay) -> None:
    server.faults.truncate = since(2)

    assert tells(why_unknown(server.url), "broke off")


def test_closed_connection_is_retried(server: Replay) -> None:
    server.faults.drop = {2}

    assert len(read_demand(server.url).requests) == 27


def test_permanently_closed_connection_is_unknown_demand(server: Replay) -> None:
    server.faults.drop = since(2)

    assert tells(why_unknown(server.url), "closed")
    assert len(server.received) == 4


def test_unreachable_server_is_unknown_demand() -> None:
    with Loopback(lambda _: one_page()) as server:
        pass

    assert tells(why_unknown(server.url), server.url, "Connection refused")


def test_silent_server_is_unknown_demand(server: Replay) -> None:
    server.faults.hold = True

    assert tells(why_unknown(server.url, silence=0.6), "0.6 s")


def test_reading_beyond_its_time_limit_is_stopped(server: Replay) -> None:
    seconds = count(step=100)
    queue = DebusineQueue(kind="debusine", url=server.url, scopes=["debian"])

    reading = DebusineRest(queue, TOKEN, max_age=300, clock=lambda: next(seconds)).read(NOW)

    assert isinstance(reading.demand, Unknown)
    assert tells(reading.demand.unknown, "300 s")
    assert "guards.demand_max_age" in reading.demand.unknown


def test_circular_list_is_unknown_demand() -> None:
    circle = one_page(row(), next_page="http://elsewhere.example/?cursor=again")

    with Loopback(lambda _: circle) as server:
        assert tells(why_unknown(server.url), "loops", "2 pages")


def test_next_link_without_cursor_is_unknown_demand() -> None:
    with Loopback(lambda _: one_page(row(), next_page="/?page=2")) as server:
        assert tells(why_unknown(server.url), "next page", "cursor")


def test_invalid_next_link_is_unknown_demand() -> None:
    with Loopback(lambda _: one_page(row(), next_page="http://[nonsense")) as server:
        assert tells(why_unknown(server.url), "next page", "cursor")


def test_other_server_than_debusine_is_unknown_demand() -> None:
    with Loopback(lambda _: Answer(200, NO_ROWS)) as server:
        server.faults.instead[STATUS] = html(404)

        assert tells(why_unknown(server.url), STATUS, "404", "Debusine")


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b"{}", "at next: Field required"),
        (b"[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (
            b'{"next": 5, "previous": null, "results": []}',
            "at next: Input should be a valid string",
        ),
        (b'{"next": null, "previous": null, "results": [{}]}', "at results.0.id: Field required"),
    ],
)
def test_invalid_response_is_unknown_with_place(body: bytes, place: str) -> None:
    with Loopback(lambda _: Answer(200, body)) as server:
        assert place in why_unknown(server.url)


@pytest.mark.parametrize("key", ["worker", "scheduler_tags_required", "priority_base", "scope"])
def test_row_without_required_field_is_unknown_demand(key: str) -> None:
    short = row()
    del short[key]

    with Loopback(lambda _: one_page(short)) as server:
        assert f"at results.0.{key}: Field required" in why_unknown(server.url)


@pytest.mark.parametrize(
    "other", [{"status": "running"}, {"scope": "kali"}, {"task_type": "Signing"}]
)
def test_unrequested_row_is_unknown_demand(other: dict[str, object]) -> None:
    with Loopback(lambda _: one_page(row(**other))) as server:
        assert tells(why_unknown(server.url), "pending", "scope debian")


def test_error_does_not_repeat_server_text() -> None:
    with Loopback(lambda _: one_page(row(priority_base="canary"))) as server:
        assert "canary" not in why_unknown(server.url)
