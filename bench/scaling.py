"""Carry out a policy that says how many machines it wants of each pool."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.model.facts import World
from fleet.model.plan import Cause, Plan, Reason
from fleet.model.price_lists import with_price_lists
from fleet.planner.assembly import assemble
from fleet.planner.begin import PoolPlans, begin_pool_plans
from fleet.planner.demand import sign_demand
from fleet.planner.inventory import PoolInventory
from fleet.planner.lifecycle.replace import make_one
from fleet.planner.lifecycle.surplus import IdleTimeout
from fleet.planner.pool_plan import PoolPlan, Why
from fleet.planner.staffing import Service, find_supplies
from fleet.planner.units import UnitState
from fleet.schema.model import Fleet, Pool
from fleet.simulate.replay import Decide


class View(NamedTuple):
    """What a policy may see of one pool."""

    pool: str
    price: Decimal
    """Per hour, of its cheapest machine that can be made."""
    on_demand: bool
    busy: int
    idle: int
    starting: int
    max: int
    max_starting: int

    @property
    def total(self) -> int:
        """Return how many machines there are."""
        return self.busy + self.idle + self.starting


class Waiting(NamedTuple):
    """Requests that wait and are alike."""

    number: int
    pools: tuple[str, ...]
    """Those whose machines can serve them, the cheapest first."""


class Wanted(NamedTuple):
    """What a policy wants of a pool."""

    create: int = 0
    keep: int = 0
    """So many stay, however long they are idle."""


Wants = Callable[[Sequence[View], Sequence[Waiting]], Mapping[str, Wanted]]
_WHY = Why(Reason.BELOW_MIN, Cause.DEMAND, "its policy wants one more")


def scaled(wants: Wants, idle_after: int | None = None) -> Decide:
    """Return the policy that has what is wanted, up to `workers.max` and `max_starting`.

    What is idle for `idle_after` seconds (None: as long as the pool says) goes, beyond what is
    kept, in the order of `scale_down_order`.
    """

    def decide(fleet: Fleet, world: World, inventories: Mapping[str, PoolInventory]) -> Plan:
        told = with_price_lists(fleet, world)
        pool_plans = begin_pool_plans(told, world, inventories)
        views = [view_of(each) for each in pool_plans.values() if each.pool and each.options]
        wanted = wants(views, waiting_of(told, world, pool_plans, views))
        for view in views:
            pool_plan, want = pool_plans[view.pool], wanted.get(view.pool, Wanted())
            room = min(view.max - view.total, view.max_starting - view.starting)
            for _ in range(min(want.create, room)):
                make_one(pool_plan, _WHY)
            _release(pool_plan, want.keep, idle_after)
        return assemble(told, world, pool_plans, Service(), explained=False)

    return decide


def _release(pool_plan: PoolPlan, keep: int, idle_after: int | None) -> None:
    """Let what is idle for long go, as if the pool had this minimum."""
    pool = pool_plan.pool
    if pool is None:
        return
    after = pool.retire.idle_after if idle_after is None else idle_after
    retire = pool.retire.model_copy(update={"idle_after": after, "at": "once"})
    workers = pool.workers.model_copy(update={"min": keep, "spare": 0})
    pool_plan.pool = pool.model_copy(update={"retire": retire, "workers": workers})
    offer = pool_plan.offer
    pool_plan.offer = offer._replace(on_demand=frozenset())
    IdleTimeout().apply(pool_plan)
    pool_plan.pool, pool_plan.offer = pool, offer


def view_of(pool_plan: PoolPlan) -> View:
    """Return what a policy may see of a pool that can make machines."""
    states = [unit.state for unit in pool_plan.staying]
    pool = pool_plan.pool
    if not isinstance(pool, Pool):
        raise TypeError(pool_plan.name)
    most = pool.workers.max
    return View(
        pool_plan.name,
        min(option.price or Decimal(0) for option in pool_plan.options),
        pool_plan.on_demand,
        states.count(UnitState.BUSY),
        states.count(UnitState.IDLE),
        len(states) - states.count(UnitState.BUSY) - states.count(UnitState.IDLE),
        most,
        most if pool.workers.max_starting is None else pool.workers.max_starting,
    )


def waiting_of(
    fleet: Fleet, world: World, pool_plans: PoolPlans, views: Sequence[View]
) -> list[Waiting]:
    """Return what waits, and the pools of `views` that can serve it."""
    price = {view.pool: (view.on_demand, view.price, view.pool) for view in views}
    supplies = find_supplies(fleet, world, pool_plans)
    return [
        Waiting(
            len(signed.requests),
            tuple(sorted({*signed.creating_pools} & price.keys(), key=price.__getitem__)),
        )
        for signed in sign_demand(fleet, world, supplies)
    ]
