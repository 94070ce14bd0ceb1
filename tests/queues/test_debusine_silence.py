"""What a list is compared with: Debusine leaves out, and says nothing of it."""

import pytest

from fleet.model.facts import Demand
from tests.builders.sentences import tells
from tests.rigs.debusine import (
    LIST,
    METRICS,
    NO_ROWS,
    NOW,
    STATUS,
    metrics,
    one_page,
    read_demand,
    row,
    serving,
    why_unknown,
)
from tests.rigs.loopback import Answer, Loopback, Received
from tests.rigs.replay import PENDING, Replay, read_exchange


@pytest.mark.parametrize(
    "silent", ["wr-list-outsider", "wr-list-no-scope-header", "wr-list-task_type-lowercase"]
)
def test_empty_list_is_unknown_while_metrics_count_pending_work(silent: str) -> None:
    with Replay("open-metrics-work-requests") as server:
        server.faults.instead[LIST] = read_exchange(silent).answer

        unknown = why_unknown(server.url)

    assert tells(unknown, "scope debian", "listed 0")
    assert "counts 29." in unknown
    assert "`debusine-admin workspace grant_role debian/WORKSPACE viewer GROUP`" in unknown


def test_assigned_rows_count_in_the_check_with_metrics() -> None:
    with Replay(*PENDING, "open-metrics-work-requests") as server:
        demand = read_demand(server.url)
        asked = [received.path for received in server.received]

    assert len(demand.requests) == 27
    assert asked == [LIST, LIST, LIST, METRICS]


def test_incomplete_scope_is_named_next_to_a_complete_one() -> None:
    def answer(received: Received) -> Answer:
        scope = received.headers["x-debusine-scope"]
        return one_page(row(scope=scope)) if scope == "debian" else Answer(200, NO_ROWS)

    with serving(answer, debian=1, kali=2) as server:
        assert tells(why_unknown(server.url, scopes=("debian", "kali")), "scope kali", "listed 0")


def test_empty_scope_is_empty_when_all_work_is_elsewhere() -> None:
    with Replay("open-metrics-work-requests") as server:
        server.faults.instead[LIST] = Answer(200, NO_ROWS)

        demand = read_demand(server.url, scopes=("debusine",))

    assert demand == Demand(read_at=NOW, requests=(), stored=True)


def test_large_metrics_are_filtered_by_line() -> None:
    other = b"\n".join(b'workers{pool="p%d"} 0.0' % number for number in range(100_000))
    counted = metrics({"debian": 1}).body

    with Loopback(lambda _: one_page(row(id=7))) as server:
        server.faults.instead[METRICS] = Answer(200, other + b"\n" + counted + other)

        assert len(read_demand(server.url).requests) == 1


NONE = Answer(200, NO_ROWS)


@pytest.mark.parametrize(
    ("exchanges", "answers", "scope", "words"),
    [
        (
            ("service-status",),
            {LIST: NONE},
            "debian",
            ("scope debian", "listed 0", "counts 29", "open-metrics/", "501"),
        ),
        (
            ("service-status", "open-metrics-work-requests"),
            {LIST: NONE},
            "x",
            ("open-metrics/", "scope x"),
        ),
        (
            (),
            {LIST: one_page(row(id=7)), METRICS: Answer(503, b""), STATUS: Answer(503, b"")},
            "debian",
            ("service-status/", "503"),
        ),
    ],
    ids=["no metrics", "its scope is not in metrics", "no second source"],
)
def test_list_is_unknown_without_a_count_of_its_scope(
    exchanges: tuple[str, ...], answers: dict[str, Answer], scope: str, words: tuple[str, ...]
) -> None:
    with Replay(*exchanges) as server:
        server.faults.instead |= answers

        unknown = why_unknown(server.url, scopes=(scope,))

    assert all(tells(unknown, each) for each in words)


# without metrics by scope, only the total of the server is left


def test_empty_list_is_accepted_without_metrics_when_none_is_pending() -> None:
    quiet = read_exchange("service-status").answer.body.replace(b'"pending":29', b'"pending":0')
    with Loopback(lambda _: Answer(200, NO_ROWS)) as server:
        server.faults.instead[METRICS] = Answer(404, b"")
        server.faults.instead[STATUS] = Answer(200, quiet)

        demand = read_demand(server.url)

    assert demand == Demand(read_at=NOW, requests=(), stored=True)


def test_lists_are_accepted_without_metrics_when_totals_match() -> None:
    walks = [read_exchange(name) for name in PENDING]

    def answer(received: Received) -> Answer:
        if received.path == STATUS:
            return read_exchange("service-status").answer
        if received.path == METRICS:
            return Answer(403, b"")
        if received.headers["x-debusine-scope"] == "empty":
            return Answer(200, NO_ROWS)
        (found,) = (each.answer for each in walks if each.asked.query == received.query)
        return found

    with Loopback(answer) as server:
        demand = read_demand(server.url, scopes=("debian", "empty"))

    assert len(demand.requests) == 27


@pytest.mark.parametrize(
    ("looks", "pending", "words"),
    [
        ([[7]], {"debian": 4}, ("listed 1", "counts 4")),
        ([[7, 8]], {"debian": 0}, ("scope debian", "listed 2", "counts 0", "cache")),
        ([[7], [7, 8]], {"debian": 4}, ("listed 2 pending",)),
        ([[7]], {"debian": 1, "kali": 500}, None),
        ([[7, 8], [8, 9, 10]], {"debian": 3}, None),
    ],
)
def test_list_is_unknown_when_the_server_counts_others(
    looks: list[list[int]], pending: dict[str, int], words: tuple[str, ...] | None
) -> None:
    """It may change while it is read: then it is read again."""
    pages = iter([*looks, looks[-1]])
    with serving(lambda _: one_page(*(row(id=n) for n in next(pages))), **pending) as server:
        if words is not None:
            assert tells(why_unknown(server.url), *words)
        else:
            demand = read_demand(server.url)
            assert [int(each.id) for each in demand.requests] == looks[-1]
            assert not demand.estimate
