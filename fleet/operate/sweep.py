"""This module carries a sweep out: by the stacks where they are, else at the providers.

What a stack holds goes the way that apply lets it go. What no stack holds, or one that is lost,
is drained and disabled where its registry can be told, and deleted at its provider.
"""

from collections.abc import Sequence

from fleet.facts import Stack, Unknown, World
from fleet.operate.apply import apply_plan
from fleet.operate.observe import Sources
from fleet.operate.strays import both, let_go_of_strays, machine_at
from fleet.plan import Action, Plan
from fleet.plan.outcome import Outcome, StackOutcome
from fleet.ports import Tell
from fleet.schema.model import Fleet


def sweep_machines(
    fleet: Fleet, world: World, plan: Plan, sources: Sources, tell: Tell
) -> Outcome:
    """Carry out the guarded plan of a sweep; return what became of each pool it touches."""
    held = [action for action in plan.actions if _is_recorded(world, action)]
    stray = [action for action in plan.actions if action not in held]
    pools = sorted({action.pool for action in stray})
    by_provider = [
        let_go_of_strays(world, plan, [a for a in stray if a.pool == pool], sources, tell)
        for pool in pools
    ]
    by_stack = apply_plan(fleet, world, _only(plan, held), sources, tell)
    return by_stack.model_copy(update={"stacks": _joined(*by_stack.stacks, *by_provider)})


def _is_recorded(world: World, action: Action) -> bool:
    """Say whether a stack holds the machine of an action, so that its engine can delete it."""
    stack = None if isinstance(world.stacks, Unknown) else world.stacks.get(action.pool)
    if not isinstance(stack, Stack):
        return False
    machine = machine_at(world, stack.provider, action.worker)
    return machine is not None and stack.ids.get(action.worker) == machine.id


def _only(plan: Plan, actions: Sequence[Action]) -> Plan:
    """Return the part of a plan that these actions are, without pools they do not touch."""
    touched = {action.pool for action in actions}
    pools = tuple(pool for pool in plan.pools if pool.pool in touched)
    return plan.model_copy(update={"actions": tuple(actions), "pools": pools})


def _joined(*outcomes: StackOutcome) -> tuple[StackOutcome, ...]:
    """Return one outcome per pool, where some of its machines are in its stack and some not."""
    by_pool: dict[str, StackOutcome] = {}
    for each in outcomes:
        first = by_pool.get(each.pool)
        by_pool[each.pool] = each if first is None else both(first, each)
    return tuple(by_pool[pool] for pool in sorted(by_pool))
