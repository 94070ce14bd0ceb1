"""Withhold the actions that operators froze (`fleet freeze`), until the freeze ends.

A freeze never prevents the enforcement of a budget: workers that a used-up budget cannot pay for
are drained, and if existing machines exceed it, unneeded machines are drained and deleted.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from fleet.guard.refusals import GuardDecision
from fleet.model.orders import Freeze, Frozen, Hold, Order
from fleet.model.plan import (
    Action,
    Cause,
    Create,
    Delete,
    Drain,
    GuardResult,
    Plan,
    Reason,
    Release,
)
from fleet.schema.model import Fleet
from fleet.words import guards as words


def withhold_frozen(
    fleet: Fleet, plan: Plan, actions: Sequence[Action]
) -> Iterator[GuardDecision]:
    """Withhold the actions that a freeze forbids; yield a decision per freeze and pool."""
    found: defaultdict[tuple[str, str], list[Action | Release]] = defaultdict(list)
    orders = [each for each in plan.orders if isinstance(each, Freeze)]
    # Report the freeze that ends last, because it withholds the actions longest.
    orders.sort(key=lambda order: (order.is_precaution, order.until), reverse=True)
    freezes = {each.key: each for each in orders}
    for order, action in find_stopped(fleet, plan, freezes.values(), (*actions, *plan.releases)):
        found[order.key, action.pool].append(action)
    sizes = {verdict.pool: verdict.machines for verdict in plan.pools}
    for (key, pool), own in sorted(found.items()):
        order = freezes[key]
        yield GuardDecision(
            GuardResult(
                guard="freeze",
                pool=pool,
                result="throttled",
                because=words.explain_freeze(order.sentence, len(own)),
                way_out=command_to_end(order),
                count=len(own),
                of=sizes.get(pool, 0),
                withheld=len(own),
            ),
            own,
            until=order.ends,
        )


def find_stopped(
    fleet: Fleet, plan: Plan, orders: Iterable[Order], actions: Iterable[Action | Release]
) -> Iterator[tuple[Freeze | Hold, Action | Release]]:
    """Yield (order, action) for each action that a freeze or hold forbids, by the first order."""
    over = _over_budget(fleet, plan)
    stopping = [each for each in orders if isinstance(each, Freeze | Hold)]
    for action in actions:
        for order in stopping:
            if isinstance(order, Hold):
                stops = order.machine == action.worker and isinstance(action, Delete)
            elif _enforces_budget(action, over):
                stops = False
            else:
                stops = order.pool in (None, action.pool) and _frozen_kind(action) in order.stops
            if stops:
                yield order, action
                break


def command_to_end(order: Freeze) -> str:
    """Return the command that ends a freeze, or that shows why fleet cannot read the orders."""
    if order.is_precaution:
        return "fleet doctor"
    return f"fleet freeze --pool {order.pool} --end" if order.pool else "fleet freeze --end"


def _frozen_kind(action: Action | Release) -> Frozen | None:
    if isinstance(action, Drain) and action.reason is Reason.HELD:
        return None
    return "creates" if isinstance(action, Create) else "deletes"


def _enforces_budget(action: Action | Release, over: Collection[str]) -> bool:
    """Return whether an action saves money of a budget that is used up, or exceeded in a pool."""
    if isinstance(action, Create | Release):
        return False
    is_unneeded = action.cause is Cause.DEMAND and action.pool in over
    return is_unneeded or action.reason is Reason.BUDGET_USED_UP


def _over_budget(fleet: Fleet, plan: Plan) -> frozenset[str]:
    """Return the pools whose existing machines, without new machines, exceed a budget."""
    paths = {budget.path[:2] for budget in plan.budgets if budget.exceeded}
    of_all = [fleet.budgets[str(name)] for section, name in paths if section == "budgets"]
    if any(not (budget.scope or budget.team or budget.owner or budget.tags) for budget in of_all):
        return frozenset(verdict.pool for verdict in plan.pools)
    return frozenset(str(name) for section, name in paths if section == "pools")
