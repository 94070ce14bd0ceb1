"""What reconcile does, one sentence per test."""

import pytest

from fleet.model.facts import MachineState
from fleet.reconcile import reconcile
from tests.builders import (
    a_listing,
    a_machine,
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
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
