"""Compute the plan from config and world: `reconcile(fleet, world) -> Plan`, deterministically.

The order of records does not matter, and equal inputs give byte-identical plans. First,
`begin_pool_plans` removes machines independent of demand. Then come the steps in this module. Each
step adds actions to the plans of pools.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fleet.model.digests import config_digest, seal, world_digest
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.model.price_lists import with_price_lists
from fleet.planner.allocation import allocate
from fleet.planner.assembly import assemble
from fleet.planner.begin import PoolPlans, begin_pool_plans
from fleet.planner.budgets import judge_budgets
from fleet.planner.demand import EqualRequests, Supply, sign_demand
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.layout import Layout, lay_out
from fleet.planner.lifecycle.table import apply_rules
from fleet.planner.limits import judge_limits
from fleet.planner.pool_plan import Headroom
from fleet.planner.staffing import Service, find_supplies, staff
from fleet.planner.turns import (
    Chosen,
    Lease,
    choose_leases,
    find_free,
    find_overtaken,
    give_up_for_others,
    keep_for_turns,
    may_give_up,
)
from fleet.schema.model import Fleet

_Problem = tuple[Mapping[str, Supply], Layout, Sequence[EqualRequests]]
"""The supplies, places and limits, and requests of a run: the problem to allocate."""


def reconcile(
    fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory] | None = None
) -> Plan:
    """Return the plan for an observed world. `inventories` has the observed state of each pool."""
    fleet = with_price_lists(fleet, world)
    plan = reconcile_unsealed(fleet, world, inventories)
    known = {"config": config_digest(fleet), "world": world_digest(world)}
    return seal(plan.altered(digests=plan.digests.altered(**known)))


def reconcile_unsealed(
    fleet: Fleet,
    world: World,
    inventories: Mapping[str, PoolInventory] | None = None,
    *,
    explained: bool = True,
) -> Plan:
    """Return the plan without digests, for a simulation, which saves no plans.

    Unless `explained`, fields for readers are left out: reasons to wait, warnings, and the lower
    bound. The fleet must already have the price lists of the world.
    """
    pool_plans = begin_pool_plans(fleet, world, inventories or take_inventory(fleet, world))
    problem = _pose(fleet, world, pool_plans)
    chosen, service, _ = _assign_requests(fleet, world, pool_plans, problem)
    layout, allocation = chosen.layout, chosen.allocation
    headroom = Headroom(layout.rows, allocation.machines, allocation.counts)
    last = service.turns + 1
    for pool_plan in pool_plans.values():
        pool_plan.headroom, pool_plan.turn = headroom, last
    apply_rules(pool_plans.values(), "after")
    service.budgets = judge_budgets(
        layout.accounts, allocation.machines, headroom.kept, allocation.counts
    )
    service.limits = tuple(judge_limits(layout.uses, allocation.counts))
    if explained:
        service.proof = allocation.proof
    return assemble(fleet, world, pool_plans, service, explained=explained)


def find_leases(fleet: Fleet, world: World, withheld: Collection[str] = ()) -> list[Lease]:
    """Return the free machines that waiting tickets get before a run decides.

    No ticket gets a machine in `withheld`, or a machine that the plan deletes or keeps for others.
    """
    fleet = with_price_lists(fleet, world)
    pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
    problem = _, layout, demand = _pose(fleet, world, pool_plans)
    if may_give_up(fleet, pool_plans):
        *_, given_up = _assign_requests(fleet, world, pool_plans, problem)
        withheld = {*withheld, *given_up}
    free = find_free(fleet, world, pool_plans, layout, withheld)
    return [*choose_leases(fleet, world, layout, demand, free)]


def _pose(fleet: Fleet, world: World, pool_plans: PoolPlans) -> _Problem:
    supplies = find_supplies(fleet, world, pool_plans)
    demand = sign_demand(fleet, world, supplies)
    return supplies, lay_out(fleet, world, pool_plans, supplies, demand), demand


def _assign_requests(
    fleet: Fleet, world: World, pool_plans: PoolPlans, problem: _Problem
) -> tuple[Chosen, Service, frozenset[str]]:
    """Assign requests to workers, with the creations and deletions that this requires.

    Also return the machines that are deleted, or get no ticket, in favour of tickets of others.
    """
    supplies, layout, demand = problem
    allocation = by_age = allocate(layout.groups, layout.places, layout.rows)
    if overtaken := find_overtaken(fleet, world, demand, layout, by_age):
        by_turn = [replace(signed, turns=overtaken) for signed in demand]
        layout = lay_out(fleet, world, pool_plans, supplies, by_turn)
        allocation = allocate(layout.groups, layout.places, layout.rows)
    service = staff(pool_plans, supplies, layout.places, demand, allocation)
    chosen = Chosen(layout, allocation)
    given_up = give_up_for_others(fleet, world, pool_plans, chosen, service)
    if overtaken:
        given_up |= keep_for_turns(pool_plans, chosen, overtaken, by_age, service)
    return chosen, service, given_up
