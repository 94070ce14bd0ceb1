"""What a renamed pool takes over of what was spent and of what failed, before the first apply."""

from fleet.model.facts import World
from fleet.planner.failures import find_failing, recall, settle
from fleet.planner.inventory import take_inventory
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_sim_fleet, a_sim_world, a_stack, a_worker, ago, an_attempt
from tests.builders.budgeting import a_budgeted_fleet, a_charge, a_spent_world, accounts, these

RENAMED = a_pool(provider="desk", previously="old")
OWN_STACK = {name: a_stack(provider="desk") for name in ("old", "builders")}


def failing(fleet: Fleet, world: World) -> str:
    memory = recall(fleet, world, take_inventory(fleet, world))
    reason, _ = find_failing(memory, "builders", "ccx33", "on-demand", "desk")
    return reason


def test_renamed_pool_keeps_spending_of_old_name() -> None:
    world = a_spent_world(charges=[a_charge("4", pool="old"), a_charge("1")])
    fleet = a_budgeted_fleet({"per_day": "10 EUR"}, pool={"previously": "old"})

    today, _ = accounts(fleet, world)

    assert these(today.spent) == (5,)


def test_renamed_pool_keeps_failures_of_old_name() -> None:
    out = an_attempt(pool="old", result="out-of-stock", at=ago(minutes=1))

    assert failing(a_sim_fleet(pools={"builders": RENAMED}), a_sim_world(attempts=(out,)))


def test_pool_that_cannot_take_over_has_no_old_failures() -> None:
    out = an_attempt(pool="old", result="out-of-stock", at=ago(minutes=1))
    world = a_sim_world(attempts=(out,), stacks=OWN_STACK)

    assert not failing(a_sim_fleet(pools={"builders": RENAMED}), world)


def test_attempt_before_rename_ends_under_new_name() -> None:
    fleet = a_sim_fleet(pools={"builders": RENAMED})
    begun = an_attempt(pool="old", result="starting")
    world = a_sim_world(a_worker(), attempts=(begun,))

    (ended,) = settle(fleet, world, take_inventory(fleet, world))

    assert (ended.pool, ended.result) == ("builders", "registered")
