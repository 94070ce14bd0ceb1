"""How what is outdated is replaced, one sentence per test."""

import pytest

from fleet.model.plan import Create, Reason
from fleet.reconcile import reconcile
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world
from tests.builders.deciding import (
    FIRST,
    MON_TO_FRI,
    fleet_with,
    idle,
    reason_of,
    sentence_of,
    with_machines,
)
from tests.builders.sentences import tells


@pytest.mark.parametrize("types", [("ccx13",), ("ccx63", "ccx13")])
def test_machine_is_outdated_by_another_machine_type(types: tuple[str, ...]) -> None:
    world = with_machines(a_sim_world(*idle(FIRST)), digest="yesterday", image="trixie")

    plan = reconcile(fleet_with(machine={"type": [*types]}), world)

    assert tells(sentence_of(plan, FIRST), "ccx33", *types)


@pytest.mark.parametrize("tags", [{"provides": ["big"]}, {"requires": ["task:big"]}])
def test_machine_is_outdated_by_other_tags(tags: dict[str, object]) -> None:
    made = reconcile(fleet_with(), a_sim_world(requests=(a_request(),))).actions[0]
    assert isinstance(made, Create)
    world = with_machines(
        a_sim_world(*idle(FIRST)), digest=made.inputs.labels["digest"], image="trixie"
    )

    plan = reconcile(fleet_with(**tags), world)

    assert reason_of(plan, FIRST) is Reason.OUTDATED
    assert tells(sentence_of(plan, FIRST), "configuration")


@pytest.mark.parametrize(
    ("steering", "others"),
    [
        ({"max": 9, "min": 1, "spare": 1, "max_starting": 2}, {}),
        ({"budget": {"per_hour": "1 EUR"}}, {}),
        ({"boot": {"expected": "30s", "deadline": "15m"}}, {}),
        ({"retire": {"idle_after": "1m", "max_age": "99d", "max_uses": 7}}, {}),
        ({"replace": {"at_a_time": "50%", "windows": [MON_TO_FRI]}}, {}),
        ({"target_wait": "15m"}, {}),
        ({"mode": "observe"}, {}),
        ({"serves": ["debian"]}, {}),
        ({}, {"cadence": "1m", "guards": {"demand_max_age": "9m"}}),
    ],
)
def test_edit_of_behaviour_outdates_no_machine(
    steering: dict[str, object], others: dict[str, object]
) -> None:
    made = reconcile(fleet_with(), a_sim_world(requests=(a_request(),))).actions[0]
    assert isinstance(made, Create)
    world = with_machines(a_sim_world(*idle(FIRST)), digest=made.inputs.labels["digest"])
    pools = {"builders": a_pool(provider="desk", **steering)}

    plan = reconcile(a_sim_fleet(pools=pools, **others), world)

    assert not next(verdict for verdict in plan.workers if verdict.worker == FIRST).outdated
