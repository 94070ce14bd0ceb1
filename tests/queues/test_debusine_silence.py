"""This module holds when an empty list is empty demand: when a second witness says so."""

import pytest

from fleet.facts import Demand
from tests.debusine import LIST, NO_ROWS, NOW, STATUS, read_demand, why_unknown
from tests.loopback import Answer, Loopback, Received
from tests.replay import PENDING, Replay, read_exchange


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

    assert demand == Demand(read_at=NOW, requests=(), stored=True)


def test_an_empty_scope_is_empty_when_the_pending_work_is_all_in_another() -> None:
    with Replay("service-status", "open-metrics-work-requests") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        demand = read_demand(server.url, scopes=("debusine",))

    assert demand == Demand(read_at=NOW, requests=(), stored=True)


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
