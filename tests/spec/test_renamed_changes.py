"""What a change does that renames pools: one observation tells of them by their new names only."""

import pytest

from fleet.explain.changes import Changes, compare, find_renames, rename_pools
from fleet.model.facts import World
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_sim_fleet
from tests.spec.test_changes import (
    PRICE,
    builders,
    counted,
    differences,
    made_by,
    planned,
    waiting,
)


def renamed(base: Fleet, head: Fleet, world: World) -> Changes:
    """Return what a change does in a world that was observed by the new names of its pools."""
    renames = find_renames(base, head)
    assert isinstance(world.stacks, dict)
    stacks = {renames.get(pool, pool): stack for pool, stack in world.stacks.items()}
    seen = world.model_copy(update={"stacks": stacks})
    before = planned(rename_pools(base, renames), seen)
    return compare(before, planned(head, seen), renames=renames)


def makers(**limits: object) -> Fleet:
    pool = a_pool(provider="desk", previously="builders", **limits)
    return a_sim_fleet(pools={"makers": pool})


def test_a_pool_that_is_only_renamed_is_said_to_be_and_makes_no_difference() -> None:
    change = renamed(builders(), makers(), made_by(builders(), 2))

    assert change.is_quiet
    assert differences(change) == [("makers", "name", "builders", "makers")]


def test_a_pool_that_is_renamed_and_grows_makes_what_it_grows_by() -> None:
    world = made_by(builders(max=1), 2).model_copy(update={"queues": waiting(2).queues})

    change = renamed(builders(max=1), makers(max=2), world)

    assert [(pool, *rest[-2:]) for pool, *rest in counted(change)] == [("makers", 0, 1)]
    assert change.cost_after - change.cost_before == PRICE


def test_an_approval_of_a_pool_that_is_renamed_counts_before_as_it_does_after() -> None:
    spared = {"guard": "delete", "pool": "builders", "count": 1, "reason": "x"}
    base = a_sim_fleet(
        pools={"builders": a_pool(provider="desk")},
        approvals=[{**spared, "expires": "2027-01-01"}],
    )

    named = rename_pools(base, {"builders": "makers"})

    assert [each.pool for each in named.approvals] == ["makers"]
    assert list(named.pools) == ["makers"]


@pytest.mark.parametrize("head", [a_sim_fleet(), makers()])
def test_a_pool_whose_new_name_was_there_before_is_not_renamed(head: Fleet) -> None:
    both = a_sim_fleet(
        pools={"builders": a_pool(provider="desk"), "makers": a_pool(provider="desk")}
    )

    assert find_renames(both, head) == {}
