"""Absurd rows of a Debusine's database make at most their own request unknown."""

from typing import Any

import pytest

from fleet.model.facts import Demand
from tests.queues.conftest import Debusine
from tests.rigs.debusine_tables import RequestRow

TOP = 2**31 - 1
DONE: dict[str, Any] = {"status": "completed", "result": "success"}


def with_a_second(debusine: Debusine, **absurd: object) -> None:
    debusine.tables.add_requests([RequestRow(id=1), RequestRow(id=2, task="sbuild")])
    for column, value in absurd.items():
        text = f"UPDATE db_workrequest SET {column} = %s WHERE id = 2"  # noqa: S608 - the test's own
        debusine.tables.connection.execute(text.encode(), (value,))


@pytest.mark.parametrize(
    "absurd",
    [
        {"priority_base": TOP},
        {"priority_adjustment": -TOP - 1},
        {"created_at": "9999-12-31 23:59:59+00"},
        {"created_at": "0001-01-01 00:00:00+14"},
        {"created_at": "4000-01-01 00:00:00+00 BC"},
        {"created_at": "infinity"},
        {"created_at": "-infinity"},
        {"created_at": "1969-12-31 00:00:00+00"},
    ],
    ids=lambda each: str(each)[:60],
)
def test_request_is_bounded_when_a_column_is_absurd(
    debusine: Debusine, absurd: dict[str, object]
) -> None:
    with_a_second(debusine, **absurd)

    demand = debusine.demand()

    found = {each.id: each for each in demand.requests}
    assert sorted(found) == ["1", "2"]
    assert abs(found["2"].priority) <= TOP
    assert ("created_at" in absurd) == (found["2"].pending_since is None)
    assert Demand.model_validate_json(demand.model_dump_json()) == demand


@pytest.mark.parametrize("seconds", ["1e300", "-1e300", "-1", "0"])
def test_request_is_known_when_its_time_limit_is_absurd(debusine: Debusine, seconds: str) -> None:
    debusine.tables.add_requests([RequestRow(id=1, task="autopkgtest")])
    debusine.tables.connection.execute(
        "UPDATE db_workrequest SET task_data = jsonb_build_object('timeout',"
        " jsonb_build_object('global', %s::numeric))",
        (seconds,),
    )

    (request,) = debusine.demand().requests

    assert request.deadline_seconds in (None, 10**9)


@pytest.mark.parametrize(
    ("started", "completed"),
    [("1970-01-02", "9999-12-31"), ("0001-01-01", "2026-01-01"), ("4000-01-01 BC", "2026-01-01")],
)
def test_expected_duration_ignores_runs_of_centuries(
    debusine: Debusine, started: str, completed: str
) -> None:
    debusine.tables.add_requests(
        [
            RequestRow(id=1, started_at=started, completed_at=completed, **DONE),
            RequestRow(
                id=2,
                started_at="2026-11-20 10:00+00",
                completed_at="2026-11-20 10:10+00",
                **DONE,
            ),
            RequestRow(id=3),
        ]
    )

    (request,) = debusine.demand().requests

    assert request.expected_seconds == 600


@pytest.mark.parametrize("moment", ["9999-12-31 23:59:59+00", "0001-01-02 00:00:00+00"])
@pytest.mark.parametrize("column", ["registered", "connected"])
def test_workers_are_known_when_a_time_is_absurd(
    debusine: Debusine, column: str, moment: str
) -> None:
    debusine.add_worker("odd", **{column: f"'{moment}'"})  # type: ignore[arg-type]
    debusine.add_worker("plain")
    debusine.add_worker("later", access="awaited", expires="9999-12-31 23:59:59+00")

    workers = debusine.workers()

    assert sorted(workers) == ["later", "odd", "plain"]
    assert workers["later"].token_expires is None
