"""This module holds what reading a real Debusine's recorded answers must give."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pytest

from fleet.facts import Demand, Request, Unknown
from fleet.queues.debusine.rest import DebusineRest
from fleet.schema.model import DebusineQueue
from tests.loopback import Answer, Loopback, Received, html, redirect
from tests.replay import PENDING, TOKEN, Replay, read_exchange

NOW = datetime(2026, 11, 21, 0, 15, tzinfo=UTC)
LIST = "/api/1.0/work-request/"
STATUS = "/api/1.0/service-status/"
METRICS = "/api/1.0/open-metrics/"
NO_ROWS = b'{"next": null, "previous": null, "results": []}'


def rest(
    url: str, *, scopes: tuple[str, ...] = ("debian",), token: str | None = TOKEN
) -> DebusineRest:
    queue = DebusineQueue(kind="debusine", url=url, scopes=list(scopes))
    return DebusineRest(queue, token, silence=0.2)


def read_demand(url: str, **options: object) -> Demand:
    demand = rest(url, **options).read(NOW).demand  # type: ignore[arg-type] # passed through
    assert isinstance(demand, Demand), demand
    return demand


def why_unknown(url: str, **options: object) -> str:
    demand = rest(url, **options).read(NOW).demand  # type: ignore[arg-type] # passed through
    assert isinstance(demand, Unknown), demand
    return demand.unknown


@pytest.fixture
def server() -> Iterator[Replay]:
    with Replay(*PENDING, "service-status") as replay:
        yield replay


def row(**overrides: object) -> dict[str, object]:
    body = json.loads(read_exchange(PENDING[0]).answer.body)
    return dict(body["results"][0]) | overrides


def one_page(*rows: dict[str, object], next_page: str | None = None) -> Answer:
    body = {"next": next_page, "previous": None, "results": rows}
    return Answer(200, json.dumps(body).encode())


# what waits


def test_the_recording_holds_exactly_the_27_requests_that_wait_without_a_worker(
    server: Replay,
) -> None:
    demand = read_demand(server.url)

    ids = sorted(int(request.id) for request in demand.requests)
    assert ids == [4, 5, 7, *range(9, 33)]


def test_each_request_brings_its_required_tags_and_its_priority(server: Replay) -> None:
    recorded = {
        entry["id"]: entry
        for name in PENDING
        for entry in json.loads(read_exchange(name).answer.body)["results"]
    }

    demand = read_demand(server.url)

    assert {r.id: (list(r.required), r.priority) for r in demand.requests} == {
        str(id_): (
            sorted(entry["scheduler_tags_required"]),
            entry["priority_base"] + entry["priority_adjustment"],
        )
        for id_, entry in recorded.items()
        if entry["worker"] is None
    }


def test_a_request_is_read_with_every_field_that_a_rule_may_look_at(server: Replay) -> None:
    demand = read_demand(server.url)

    assert {request.id: request for request in demand.requests}["5"] == Request(
        id="5",
        task="sbuild",
        required=(
            "worker:build-arch:riscv64",
            "worker:cap:sbuild",
            "worker:executor:unshare",
            "worker:task:worker:sbuild:version:1",
            "worker:type:external",
        ),
        provided=(
            "task:group:debian::Members",
            "task:group:debian::builds-owners",
            "task:scope:debian",
            "task:source-package:gcc-15",
            "task:workspace:debian:builds",
        ),
        priority=-10,
        pending_since=datetime(2026, 11, 21, 0, 14, 24, 895110, tzinfo=UTC),
        requester="2",
        groups=("debian::Members", "debian::builds-owners"),
        scope="debian",
        workspace="builds",
        package="gcc-15",
        task_data={
            "build_architecture": "riscv64",
            "environment": "debian/match:codename=trixie:architecture=riscv64",
        },
    )


def test_requests_stand_in_the_order_in_which_debusine_serves_them(server: Replay) -> None:
    demand = read_demand(server.url)

    assert [request.id for request in demand.requests[:3]] == ["4", "7", "9"]
    assert demand.requests[-1].id == "5"


def test_the_age_of_demand_counts_from_the_start_of_the_reading(server: Replay) -> None:
    assert read_demand(server.url).read_at == NOW


def test_rest_alone_has_no_registry(server: Replay) -> None:
    assert rest(server.url).read(NOW).workers is None


def test_a_page_that_repeats_a_request_does_not_count_it_twice() -> None:
    pages = {"": one_page(row(id=7), next_page="/?cursor=b"), "b": one_page(row(id=7), row(id=8))}

    with Loopback(lambda received: pages[received.query.get("cursor", "")]) as server:
        demand = read_demand(server.url)

    assert [request.id for request in demand.requests] == ["7", "8"]


def test_a_request_that_got_a_worker_while_the_list_was_read_does_not_wait() -> None:
    pages = {
        "": one_page(row(id=7), row(id=9), next_page="/?cursor=b"),
        "b": one_page(row(id=7, worker=3)),
    }

    with Loopback(lambda received: pages[received.query.get("cursor", "")]) as server:
        demand = read_demand(server.url)

    assert [request.id for request in demand.requests] == ["9"]


def test_every_scope_is_walked_once_with_its_own_header() -> None:
    def answer(received: Received) -> Answer:
        scope = received.headers["x-debusine-scope"]
        return one_page(row(id=1 if scope == "debian" else 2, scope=scope))

    with Loopback(answer) as server:
        demand = read_demand(server.url, scopes=("debian", "kali", "debian"))
        asked = [received.headers["x-debusine-scope"] for received in server.received]

    assert {(request.id, request.scope) for request in demand.requests} == {
        ("1", "debian"),
        ("2", "kali"),
    }
    assert asked == ["debian", "kali"]


# the token stays with its server


def test_only_the_cursor_is_taken_from_the_link_to_the_next_page(server: Replay) -> None:
    recorded_host = "127.0.0.1:18080"

    read_demand(server.url)

    assert recorded_host in read_exchange(PENDING[0]).answer.body.decode()
    assert [received.query.get("cursor") for received in server.received] == [
        None,
        "cD0yMDI2LTExLTIxKzAwJTNBMTQlM0E0My4zMjk1NTAlMkIwMCUzQTAw",
        "cD0yMDI2LTExLTIxKzAwJTNBMTQlM0EzMy42MzU3NjUlMkIwMCUzQTAw",
    ]


def test_a_redirect_is_not_followed_and_the_token_is_not_sent_there(server: Replay) -> None:
    with Loopback(lambda _: one_page()) as other:
        server.faults.instead[LIST] = redirect(other.url + "/?token=canary")

        unknown = why_unknown(server.url)

    assert other.received == []
    assert "redirects to the host 127.0.0.1" in unknown
    assert "no token was sent there" in unknown
    assert "canary" not in unknown


def test_a_redirect_within_the_server_is_an_error_too(server: Replay) -> None:
    server.faults.instead[LIST] = redirect("/login")

    assert "redirects to another path of the same host" in why_unknown(server.url)


def test_a_redirect_to_nonsense_is_an_error_too(server: Replay) -> None:
    server.faults.instead[LIST] = redirect("http://[nonsense")

    assert "redirects to another path" in why_unknown(server.url)


def test_questions_that_need_no_token_get_none() -> None:
    with Replay("wr-list-outsider", "service-status") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        why_unknown(server.url)
        sent = {received.path: received.headers.get("token") for received in server.received}

    assert sent == {LIST: TOKEN, STATUS: None, METRICS: None}


def test_a_token_with_a_line_break_is_refused_without_showing_it(server: Replay) -> None:
    unknown = why_unknown(server.url, token="canary\nX-Evil: yes")

    assert "holds characters that HTTP does not carry" in unknown
    assert "canary" not in unknown
    assert server.received == []


def test_a_token_outside_ascii_is_refused_without_showing_it(server: Replay) -> None:
    unknown = why_unknown(server.url, token="canäry")

    assert "holds characters that HTTP does not carry" in unknown
    assert "canäry" not in unknown


# silence is not emptiness


@pytest.mark.parametrize(
    "silent", ["wr-list-outsider", "wr-list-no-scope-header", "wr-list-task_type-lowercase"]
)
def test_an_empty_list_beside_pending_work_is_unknown(silent: str) -> None:
    with Replay("service-status", "open-metrics-work-requests") as server:
        server.faults.instead[LIST] = read_exchange(silent).answer

        unknown = why_unknown(server.url)

    assert unknown == (
        "scope debian was listed as empty, but the server has 29 pending requests for workers, "
        "29 of them in that scope. Debusine answers with an empty list, not an error, to a token "
        "whose user may not look: give that user the role viewer on each workspace of scope "
        "debian, and compare the scope's spelling with the server's"
    )


def test_an_empty_list_is_empty_demand_when_the_server_has_nothing_pending() -> None:
    quiet = read_exchange("service-status").answer.body.replace(b'"pending":29', b'"pending":0')
    with Loopback(lambda _: Answer(200, NO_ROWS)) as server:
        server.faults.instead[STATUS] = Answer(200, quiet)

        demand = read_demand(server.url)

    assert demand == Demand(read_at=NOW, requests=())


def test_an_empty_scope_is_empty_when_the_pending_work_is_all_in_another() -> None:
    with Replay("service-status", "open-metrics-work-requests") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        demand = read_demand(server.url, scopes=("debusine",))

    assert demand == Demand(read_at=NOW, requests=())


def test_a_scope_that_the_metrics_do_not_name_is_not_taken_for_empty() -> None:
    with Replay("service-status", "open-metrics-work-requests") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        assert "an unknown number of them in that scope" in why_unknown(server.url, scopes=("x",))


def test_an_empty_list_is_unknown_when_the_metrics_cannot_be_read() -> None:
    with Replay("service-status") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        assert "an unknown number of them in that scope" in why_unknown(server.url)


def test_an_empty_list_is_unknown_when_no_witness_answers() -> None:
    with Loopback(lambda _: Answer(200, NO_ROWS)) as server:
        server.faults.instead[STATUS] = Answer(503, b"")

        assert "service-status/ answered with status 503" in why_unknown(server.url)


def test_an_empty_scope_needs_no_metrics_when_the_others_account_for_all_pending_work() -> None:
    walks = {name: read_exchange(name) for name in PENDING}

    def answer(received: Received) -> Answer:
        if received.path == STATUS:
            return read_exchange("service-status").answer
        if received.headers["x-debusine-scope"] == "empty":
            return Answer(200, NO_ROWS)
        (found,) = (e.answer for e in walks.values() if e.asked.query == received.query)
        return found

    with Loopback(answer) as server:
        demand = read_demand(server.url, scopes=("debian", "empty"))

    assert len(demand.requests) == 27


# a server that refuses, lies or is down


def test_a_wrong_token_is_unknown_and_says_how_to_make_another(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-bad-token").answer

    assert why_unknown(server.url) == (
        f"{server.url}{LIST} answered with status 403: the token is wrong, disabled or expired, "
        "or not a user's; `debusine-admin create_token USER` makes one"
    )


def test_a_workers_token_is_unknown(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-worker-token").answer

    assert "or not a user's" in why_unknown(server.url)


def test_a_missing_token_is_unknown_and_says_where_to_write_it(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-no-token").answer

    assert "give this queue a `token` in fleet.yaml" in why_unknown(server.url, token=None)
    assert "token" not in server.received[0].headers


def test_an_unknown_scope_is_unknown_although_the_server_answers_with_a_page(
    server: Replay,
) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-unknown-scope").answer

    assert "status 404: it knows no scope nosuch" in why_unknown(server.url, scopes=("nosuch",))


def test_a_refused_question_is_unknown(server: Replay) -> None:
    server.faults.instead[LIST] = read_exchange("wr-list-invalid-status").answer

    assert "status 400: it refuses the question" in why_unknown(server.url)


def test_a_page_instead_of_json_is_unknown(server: Replay) -> None:
    server.faults.instead[LIST] = html()

    assert "answered with an HTML page instead of JSON" in why_unknown(server.url)


def test_a_failing_server_is_unknown(server: Replay) -> None:
    server.faults.instead[LIST] = html(500)

    assert "status 500: the trouble is the server's" in why_unknown(server.url)


def test_an_answer_that_breaks_off_is_unknown(server: Replay) -> None:
    server.faults.truncate = {2}

    assert "broke off in the middle of its answer" in why_unknown(server.url)


def test_one_connection_closed_without_an_answer_is_asked_again(server: Replay) -> None:
    server.faults.drop = {2}

    assert len(read_demand(server.url).requests) == 27


def test_a_connection_closed_twice_without_an_answer_is_unknown(server: Replay) -> None:
    server.faults.drop = {2, 3}

    assert "closed the connection twice without an answer" in why_unknown(server.url)


def test_a_server_that_is_down_is_unknown() -> None:
    with Loopback(lambda _: one_page()) as server:
        pass

    assert "could not be reached" in why_unknown(server.url)


def test_a_server_that_says_nothing_is_unknown(server: Replay) -> None:
    server.faults.hold = True

    assert "sent nothing for 0.2 s" in why_unknown(server.url)


def test_a_reading_older_than_its_limit_is_given_up(server: Replay) -> None:
    seconds = count(step=100)
    queue = DebusineQueue(kind="debusine", url=server.url, scopes=["debian"])

    reading = DebusineRest(queue, TOKEN, max_age=300, clock=lambda: next(seconds)).read(NOW)

    assert isinstance(reading.demand, Unknown)
    assert "was not read within 300 s" in reading.demand.unknown
    assert "demand older than guards.demand_max_age is not acted upon" in reading.demand.unknown


def test_a_list_that_leads_in_a_circle_is_unknown() -> None:
    circle = one_page(row(), next_page="http://elsewhere.example/?cursor=again")

    with Loopback(lambda _: circle) as server:
        assert "leads in a circle (after 2 pages" in why_unknown(server.url)


def test_a_link_to_the_next_page_without_a_cursor_is_unknown() -> None:
    with Loopback(lambda _: one_page(row(), next_page="/?page=2")) as server:
        assert "holds no cursor" in why_unknown(server.url)


def test_a_link_to_the_next_page_that_is_no_address_is_unknown() -> None:
    with Loopback(lambda _: one_page(row(), next_page="http://[nonsense")) as server:
        assert "holds no cursor" in why_unknown(server.url)


def test_a_server_that_is_no_debusine_is_unknown() -> None:
    with Loopback(lambda _: Answer(200, NO_ROWS)) as server:
        server.faults.instead[STATUS] = html(404)

        assert "is it a Debusine server?" in why_unknown(server.url)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b"", "Invalid JSON"),
        (b"[]", "Input should be an object"),
        (b"{}", "at next: Field required"),
        (b"[" * 100_000, "Invalid JSON: recursion limit exceeded"),
        (b'{"next": 5, "results": []}', "at next: Input should be a valid string"),
        (b'{"next": null, "results": [{}]}', "at results.0.id: Field required"),
    ],
)
def test_an_answer_of_another_shape_is_unknown_and_says_where(body: bytes, place: str) -> None:
    with Loopback(lambda _: Answer(200, body)) as server:
        assert place in why_unknown(server.url)


@pytest.mark.parametrize("key", ["worker", "scheduler_tags_required", "priority_base", "scope"])
def test_a_row_without_a_field_that_decides_is_unknown(key: str) -> None:
    short = row()
    del short[key]

    with Loopback(lambda _: one_page(short)) as server:
        assert f"at results.0.{key}: Field required" in why_unknown(server.url)


@pytest.mark.parametrize(
    "other", [{"status": "running"}, {"scope": "kali"}, {"task_type": "Signing"}]
)
def test_a_row_that_was_not_asked_for_is_unknown(other: dict[str, object]) -> None:
    with Loopback(lambda _: one_page(row(**other))) as server:
        assert "which is not pending work for workers in scope debian" in why_unknown(server.url)


def test_what_a_server_wrote_is_not_repeated_in_a_message() -> None:
    with Loopback(lambda _: one_page(row(priority_base="canary"))) as server:
        assert "canary" not in why_unknown(server.url)


def test_the_http_library_is_loaded_only_when_something_is_read() -> None:
    modules = "fleet.queues.debusine.rest, fleet.queues.world, fleet.providers.hcloud"
    code = f"import sys, {modules}; print('httpx' in sys.modules)"

    printed = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout

    assert printed == "False\n"
