"""Both ways to read a Debusine tell the same demand: over REST by request, over SQL by group."""

import pytest

from fleet.model.facts import Demand, Request
from fleet.queues.debusine.rest import DebusineRest
from fleet.queues.debusine.rows import WorkRequestRow
from fleet.schema.model import DebusineQueue, Fleet
from tests.builders import a_fleet, a_pool
from tests.builders.alike import grouped
from tests.queues.conftest import Debusine
from tests.rigs.debusine import NOW
from tests.rigs.debusine_tables import RequestRow
from tests.rigs.recorded import recorded_requests
from tests.rigs.replay import PENDING, TOKEN, Replay

FLEETS = {
    "nothing but what is always looked at": {},
    "limits per submitter": {"tags": {"big": {"limits": {"per": {"submitter": 2}}}}},
    "limits per scope": {"tags": {"big": {"limits": {"per": {"scope": 2}}}}},
    "a budget of a scope": {"budgets": {"all": {"scope": "debian", "per_day": "20 EUR"}}},
    "an allow-list": {"powerful": [{"match": "debian/.*/arm64/linux", "ask": ["big"]}]},
    "an allow-list that takes everything": {
        "powerful": [
            {"match": "debian/.*", "ask": ["big"]},
            {"match": "debian/builds/.*/(gcc-15|linux)", "ask": ["huge"]},
        ]
    },
    "an allow-list of one task": {
        "powerful": [
            {"match": "debian/.*", "ask": ["big"], "task": "sbuild"},
            {"match": "debian/builds/.*/(gcc-15|linux)", "ask": ["huge"], "task": "autopkgtest"},
        ]
    },
    "a pool that requires tags": {
        "pools": {"builders": a_pool(requires=["task:scope:debian", "task:source-package:linux"])}
    },
    "a place in task data": {
        "derive": [{"from": "build_architecture", "ask": "worker:build-arch:{value}"}]
    },
    "places within places": {
        "derive": [
            {"from": "input.source_artifact", "ask": "source-{value}"},
            {"from": "build_components.0", "ask": "first-{value}"},
            {"from": "environment", "lookup": "environments", "ask": "in-{value.architecture}"},
        ]
    },
    "source builds": {"derive": [{"source_build": True, "ask": "source"}]},
    "teams of users": {"teams": {"kde": {"users": ["1", "2"]}}},
    "teams of groups": {"teams": {"kde": {"groups": ["kde", "builders"]}}},
    "teams of scopes": {"teams": {"kde": {"scopes": ["debian"]}}},
    "teams of workspaces": {"teams": {"kde": {"workspaces": ["builds"]}}},
}


def over_rest(fleet: Fleet) -> Demand:
    paths = [rule.from_ for rule in fleet.derive if rule.from_ is not None]
    with Replay(*PENDING, "open-metrics-work-requests") as server:
        queue = DebusineQueue(kind="debusine", url=server.url, scopes=["debian"])
        demand = DebusineRest(queue, TOKEN, paths=paths).read(NOW).demand
    assert isinstance(demand, Demand), demand
    return demand


@pytest.mark.parametrize("changes", FLEETS.values(), ids=FLEETS)
def test_recorded_queue_has_equal_demand_by_rest_and_sql(
    debusine: Debusine, changes: dict[str, object]
) -> None:
    fleet = a_fleet(**changes)
    debusine.tables.add_requests(recorded_requests())

    over_sql = debusine.demand(fleet)

    assert over_sql == grouped(over_rest(fleet), fleet)


@pytest.mark.parametrize(
    ("task", "timeout", "deadline"),
    [
        ("autopkgtest", {"global": 7200}, 7200),
        ("autopkgtest", {"global": 10**12}, 10**9),
        ("autopkgtest", {"global": 0}, None),
        ("autopkgtest", {"global": "2h"}, None),
        ("autopkgtest", {"test": 60}, None),
        ("autopkgtest", None, None),
        ("sbuild", {"global": 7200}, None),
    ],
)
def test_test_request_has_its_timeout(
    debusine: Debusine, task: str, timeout: object, deadline: int | None
) -> None:
    debusine.tables.add_requests([RequestRow(1, task=task, data={"timeout": timeout})])

    (request,) = debusine.demand().requests

    assert request.deadline_seconds == deadline
    assert a_row(task_name=task, task_data={"timeout": timeout}).deadline_seconds == deadline


def a_row(**overrides: object) -> Request:
    """Return the request of a row as REST tells it."""
    row: dict[str, object] = {
        "id": 1,
        "task_type": "Worker",
        "status": "pending",
        "scope": "debian",
        "workspace": "builds",
        "created_at": NOW,
        "created_by": None,
        "worker": None,
        "priority_base": 0,
        "priority_adjustment": 0,
        "scheduler_tags_required": (),
        "scheduler_tags_provided": (),
    }
    return WorkRequestRow.model_validate(row | overrides).to_request()
