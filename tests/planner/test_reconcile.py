"""What reconcile does, one sentence per test."""

import pytest

from fleet.model.facts import MachineState
from fleet.model.plan import Create
from fleet.reconcile import reconcile
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    some_inputs,
)
from tests.builders.budgeting import a_ledger
from tests.builders.deciding import FIRST, SECOND, actions_of, fleet_with
from tests.builders.sentences import tells


@pytest.mark.parametrize(
    ("state", "made"), [(MachineState.STARTING, []), (MachineState.RUNNING, [("create", SECOND)])]
)
def test_only_booting_machines_count_to_max_starting_without_registry(
    state: MachineState, made: list[tuple[str, str]]
) -> None:
    machine = a_machine(state=state, id="sim-1")
    world = a_sim_world(
        requests=(a_request(id="1"), a_request(id="2")),
        providers={"desk": a_listing(machine)},
        stacks={
            "builders": a_stack(provider="desk", workers=(some_inputs(),), ids={FIRST: "sim-1"})
        },
    )

    assert actions_of(reconcile(fleet_with(max_starting=1), world)) == made


@pytest.mark.parametrize(("count", "pools"), [(1, ["cheap"]), (2, ["cheap", "dear"])])
def test_next_cheapest_pool_is_used_when_one_is_full(count: int, pools: list[str]) -> None:
    fleet = a_sim_fleet(
        pools={
            "dear": a_pool(provider="desk", machine="ccx63"),
            "cheap": a_pool(provider="desk", machine="ccx13", max=1),
        }
    )
    requests = tuple(a_request(id=str(number)) for number in range(count))

    plan = reconcile(fleet, a_sim_world(requests=requests))

    assert [action.pool for action in plan.actions] == pools


def test_higher_priority_is_served_before_age() -> None:
    old = a_request(id="1", pending_since=ago(days=1))
    urgent = a_request(id="2", priority=10)

    plan = reconcile(fleet_with(max=1), a_sim_world(requests=(old, urgent)))

    assert isinstance(plan.actions[0], Create)
    assert plan.actions[0].serves == ("debian/2",)


ARCH = "worker:build-arch:riscv64"
EXCLUSIVE, ON_DEMAND = {"big": {"exclusive": True}}, {"big": {"on_demand": True}}


@pytest.mark.parametrize(
    ("asks", "pools", "tags", "key", "words"),
    [
        (["gpu"], {"builders": {}}, {}, "provides", ["builders", "gpu"]),
        ([ARCH], {"builders": {}}, {}, "image", ["builders", ARCH]),
        (["gib>=4096"], {"builders": {}}, {"gib": {"kind": "number"}}, "machine", ["builders"]),
        ([], {"builders": {"requires": ["trusted"]}}, {}, "requires", ["builders", "trusted"]),
        ([], {"builders": {"requires": ["t"], "provides": ["big"]}}, EXCLUSIVE, "requires", []),
        ([], {"builders": {"provides": ["big"]}}, EXCLUSIVE, "provides", ["exclusive", "big"]),
        (["gpu"], {"builders": {"provides": ["big"]}}, ON_DEMAND, "provides", []),
        (["gpu"], {"image": {"provides": ["big"]}}, ON_DEMAND, "provides", []),
        (["gpu"], {"machine": {"provides": ["big"]}}, ON_DEMAND, "provides", []),
        ([ARCH], {"legacy": {"static": ["old-1"]}}, {}, "provides", []),
    ],
    ids=lambda value: str(value) if isinstance(value, list | dict) else None,
)
def test_unserved_request_names_the_key_that_decides(
    asks: list[str],
    pools: dict[str, dict[str, object]],
    tags: dict[str, object],
    key: str,
    words: list[str],
) -> None:
    made = {
        n: keys if "static" in keys else a_pool(provider="desk", **keys)
        for n, keys in pools.items()
    }
    world = a_sim_world(requests=(a_request(required=tuple(asks)),))

    plan = reconcile(a_sim_fleet(pools=made, tags=tags), world)

    assert plan.is_quiet
    assert plan.unserved[0].path == ("pools", *pools, key)
    assert tells(plan.unserved[0].because, *words)


def test_pool_with_requires_serves_only_requests_with_that_tag() -> None:
    fleet = fleet_with(requires=["task:scope:debian"])
    with_tag = a_request(id="1", provided=("task:scope:debian",))
    without = a_request(id="2")

    plan = reconcile(fleet, a_sim_world(requests=(with_tag, without)))

    assert isinstance(plan.actions[0], Create)
    assert plan.actions[0].serves == ("debian/1",)
    assert plan.unserved[0].requests == ("debian/2",)


def test_plan_cost_counts_existing_and_new_machines() -> None:
    world = a_sim_world(a_worker(busy=True), requests=(a_request(),))

    plan = reconcile(a_sim_fleet(), world)

    assert (str(plan.cost_before), str(plan.cost_after)) == ("0.0777", "0.1554")


def test_grouped_requests_count_each() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world(requests=(a_request(count=2),)))

    assert len(plan.actions) == 2


def test_plan_has_time_of_world() -> None:
    plan = reconcile(a_sim_fleet(), a_sim_world())

    assert plan.time == NOW


def test_warm_machine_is_of_cheapest_type() -> None:
    fleet = fleet_with(min=1, machine={"type": ["ccx63", "ccx13"]})

    (action,) = reconcile(fleet, a_sim_world()).actions

    assert isinstance(action, Create)
    assert action.inputs.type == "ccx13"


def test_ready_spare_machines_are_not_explained_as_missing() -> None:
    giants = a_pool(provider="desk", provides=["giant"], spare=1)
    fleet = a_sim_fleet(pools={"giants": giants}, tags={"giant": {"limits": {"total": 1}}})
    names = ("debian-ci-giants-0001", "debian-ci-giants-0002")
    busy = a_worker(name=names[0], pool="giants", busy=True, work={"required": ("giant",)})
    idle = a_worker(name=names[1], pool="giants")

    plan = reconcile(fleet, a_sim_world(busy, idle, requests=(a_request(required=("giant",)),)))

    assert tells(plan.pools[0].because, "1", "workers.spare", "1")


@pytest.mark.parametrize("limit", ["per_day", "per_month"])
def test_request_names_the_budget_that_pays_for_no_permanent_machine(limit: str) -> None:
    machine = {"type": "ccx33", "price": "1 EUR/h"}
    fleet = fleet_with(machine=machine, budget={limit: "20 EUR"}, min=1)
    world = a_sim_world(requests=(a_request(expected_seconds=600),), ledger=a_ledger())

    # The machine would stay idle after the request, and cost more than the budget.
    (unserved,) = reconcile(fleet, world).unserved

    assert unserved.path == ("pools", "builders", "budget", limit)
