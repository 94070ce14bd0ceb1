"""Why a pool holds as many machines as it does, and what stops one more."""

import re

import pytest

from fleet.explain.pool import explain_pool
from fleet.explain.values import Explanation
from fleet.guard import guard
from fleet.model.facts import Worker, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker
from tests.builders.deciding import FIRST, fleet_with
from tests.builders.sentences import tells


def explained(fleet: Fleet, world: World, name: str = "builders") -> Explanation:
    found = explain_pool(fleet, world, guard(fleet, reconcile(fleet, world)), name)
    assert found is not None
    return found


def of_pool(fleet: Fleet, world: World, name: str = "builders") -> list[str]:
    return [reason.because for reason in explained(fleet, world, name).reasons]


def test_explanation_of_pool_names_request_unserved_with_one_less() -> None:
    world = a_sim_world(requests=(a_request(id="1"), a_request(id="2")))

    (less,) = (each for each in of_pool(a_sim_fleet(), world) if each.startswith("not 1"))

    assert less.endswith(": debian/2")


def test_explanation_of_pool_names_min_for_last_machine() -> None:
    assert "not 0: workers.min is 1" in of_pool(fleet_with(min=1), a_sim_world(a_worker()))


def test_explanation_of_pool_names_worker_kept_without_demand() -> None:
    found = of_pool(a_sim_fleet(), a_sim_world(a_worker()))

    assert any(tells(each, "0", FIRST, "idle") for each in found)


def test_explanation_of_pool_names_limit_of_additional_machine() -> None:
    world = a_sim_world(requests=tuple(a_request(id=str(n)) for n in range(1, 6)))

    found = of_pool(a_sim_fleet(), world)
    assert any(tells(each, "4", "2", "builders", "workers.max", "3") for each in found)


@pytest.mark.parametrize(
    ("queue", "by"),
    [
        ({"kind": "tickets"}, "scheduler"),
        (
            {"kind": "debusine", "url": "https://debusine.example.org", "scopes": ["debian"]},
            "capacity",
        ),
        ({"kind": "world", "path": "world.json"}, None),
    ],
)
def test_explanation_of_pool_names_enforcer_of_tag_limit(
    queue: dict[str, object], by: str | None
) -> None:
    fleet = a_sim_fleet(
        queues={"debian": queue},
        pools={"builders": a_pool(provider="desk", provides=["gpu"])},
        tags={"gpu": {"limits": {"total": 1}}},
    )
    world = a_sim_world(requests=tuple(a_request(id=i, required=("gpu",)) for i in ("1", "2")))

    found = explained(fleet, world)

    (more,) = [each for each in found.reasons if each.because.startswith("not 2")]
    assert more.path[:3] == ("tags", "gpu", "limits")
    assert more.by == by


def test_explanation_of_pool_counts_requests_by_kind_of_machine() -> None:
    world = a_sim_world(a_worker(), requests=tuple(a_request(id=str(n)) for n in range(1, 6)))

    assert any(
        tells(each, "queue debian", "5")
        and re.findall(r"\d+", each.rpartition(": ")[2]) == ["1", "2"]
        for each in of_pool(a_sim_fleet(), world)
    )


@pytest.mark.parametrize(
    ("workers", "steps"), [((), ()), ((a_worker(),), ("`fleet explain worker NAME`",))]
)
def test_explanation_of_pool_suggests_explaining_its_workers(
    workers: tuple[Worker, ...], steps: tuple[str, ...]
) -> None:
    fleet, world = a_sim_fleet(), a_sim_world(*workers)

    found = explained(fleet, world)

    assert len(found.next_steps) == len(steps)
    assert all(map(tells, found.next_steps, steps))


def test_explanation_of_pool_has_cost_of_one_additional_machine() -> None:
    (more,) = of_pool(a_sim_fleet(), a_sim_world())

    assert tells(more, "1", "idle", "0.0777 EUR/h")


def test_explanation_of_static_pool_has_no_margins() -> None:
    fleet = a_sim_fleet(pools={"legacy": {"static": ["old-1"]}})

    assert of_pool(fleet, a_sim_world(), "legacy") == []
