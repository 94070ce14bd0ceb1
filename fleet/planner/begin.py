"""Create the plan of each pool, with the removals that do not depend on demand.

This step precedes the allocation, so that the removed machines get no new work.
"""

from collections.abc import Mapping

from fleet.model.facts import Unknown, World
from fleet.model.plan import Reason
from fleet.planner.budgets import Books, spending_limits
from fleet.planner.failures import find_lost, recall
from fleet.planner.images import choose_image
from fleet.planner.inventory import PoolInventory, find_freeze
from fleet.planner.lifecycle.table import apply_rules
from fleet.planner.machine_inputs import (
    NOTHING_SHARED,
    Closure,
    digest_of,
    find_closures,
    known_names,
    options_of,
    why_closed,
    with_begun,
    worker_names,
)
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.shared_stacks import shared_settings
from fleet.schema.model import Fleet
from fleet.tagrules.offers import offer_of_pool


class PoolPlans(dict[str, PoolPlan]):
    """The plan of each pool by name, and the books of the budgets; None if there is no budget."""

    books: Books | None = None


def begin_pool_plans(
    fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]
) -> PoolPlans:
    """Map each pool to its plan, with the removals that do not depend on demand."""
    remembered = known_names(fleet, world)
    pool_plans = PoolPlans()
    memory = recall(fleet, world, inventories)
    for name, inventory in inventories.items():
        choice = choose_image(fleet, world, memory, name)
        shared = shared_settings(fleet, world, inventory.provider)
        known = NOTHING_SHARED if isinstance(shared, Unknown) else shared
        options = options_of(fleet, memory, name, choice, known)
        freeze = find_freeze(fleet, world, name)
        pool_plan = PoolPlan(
            fleet=fleet,
            world=world,
            inventory=with_begun(fleet, inventory, options, choice, memory.by_pool.get(name, ())),
            pool=fleet.dynamic_pool(name),
            names=worker_names(fleet, name, remembered),
            closed=Closure(freeze.sentence, ("pools", name), freeze.ends)
            if freeze
            else next(find_closures(fleet, inventory, choice, shared), None),
            options=options,
            memory=memory,
            lost=find_lost(memory, inventory),
            choice=choice,
        )
        if pool_plan.pool is not None:
            pool_plan.offer = offer_of_pool(fleet, name, choice.images)
        if not pool_plan.closed:
            # Machines with image versions that a guard stopped are not outdated.
            pool_plan.digests = frozenset(
                digest_of(fleet, option, image) for option in options for image in choice.ids
            )
            pool_plan.closed = why_closed(pool_plan.options)
        pool_plans[name] = pool_plan
    apply_rules(pool_plans.values(), "before")
    if spending_limits(fleet):
        pool_plans.books = Books(fleet, world, pool_plans)
        drain_unpaid(pool_plans, pool_plans.books)
    return pool_plans


def drain_unpaid(pool_plans: PoolPlans, books: Books) -> None:
    """Drain the workers on which some budget cannot pay for new work."""
    for holding, because, path in books.unpaid:
        pool_plan = pool_plans[holding.pool]
        if holding.unit is not None and pool_plan.can_scale_down:
            pool_plan.drain(holding.unit, Reason.BUDGET_USED_UP, because)
            pool_plan.unpaid[holding.name] = path
