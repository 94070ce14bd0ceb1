"""This module carries a sweep out: by the stacks where they are, else at the providers.

What a stack holds goes the way that apply lets it go. What no stack holds, or one that is lost,
is drained and disabled where its registry can be told, and deleted at its provider.
"""

from collections.abc import Sequence
from typing import Literal

from fleet.errors import FleetError, PlanRefused, WorkerBusy
from fleet.facts import Listing, Machine, Stack, Unknown, World
from fleet.operate.apply import Tell, apply_plan
from fleet.operate.observe import Sources
from fleet.plan import Action, Delete, Drain, Outcome, Plan, StackOutcome
from fleet.ports import Registry
from fleet.schema.model import Fleet

_WORST_FIRST: tuple[Literal["failed", "refused", "applied", "unchanged"], ...] = (
    "failed",
    "refused",
    "applied",
    "unchanged",
)


def sweep_machines(
    fleet: Fleet, world: World, plan: Plan, sources: Sources, tell: Tell
) -> Outcome:
    """Carry out the guarded plan of a sweep; return what became of each pool it touches."""
    held = [action for action in plan.actions if _is_recorded(world, action)]
    stray = [action for action in plan.actions if action not in held]
    pools = sorted({action.pool for action in stray})
    by_provider = [
        _sweep_pool(world, plan, [a for a in stray if a.pool == pool], sources, tell)
        for pool in pools
    ]
    by_stack = apply_plan(fleet, world, _only(plan, held), sources, tell)
    return by_stack.model_copy(update={"stacks": _joined(*by_stack.stacks, *by_provider)})


def _is_recorded(world: World, action: Action) -> bool:
    """Say whether a stack holds the machine of an action, so that its engine can delete it."""
    stack = None if isinstance(world.stacks, Unknown) else world.stacks.get(action.pool)
    if not isinstance(stack, Stack):
        return False
    machine = _machine(world, action.worker)
    return machine is not None and stack.ids.get(action.worker) == machine.id


def _only(plan: Plan, actions: Sequence[Action]) -> Plan:
    """Return the part of a plan that these actions are, without pools they do not touch."""
    touched = {action.pool for action in actions}
    pools = tuple(pool for pool in plan.pools if pool.pool in touched)
    return plan.model_copy(update={"actions": tuple(actions), "pools": pools})


def _sweep_pool(
    world: World, plan: Plan, actions: Sequence[Action], sources: Sources, tell: Tell
) -> StackOutcome:
    done: dict[str, list[str]] = {"drain": [], "delete": []}
    kept, worst = [], "applied"
    for action in actions:
        try:
            _sweep_one(world, plan, action, sources)
        except WorkerBusy as busy:
            kept.append(f"{action.worker} stays: {busy}")
        except FleetError as error:
            kept.append(f"{action.worker} stays: {error}")
            worst = "refused" if isinstance(error, PlanRefused) else "failed"
        else:
            tell(f"{action.pool}: {action.action} {action.worker}")
            done[action.action].append(action.worker)
    return StackOutcome.model_validate(
        {
            "pool": actions[0].pool,
            "result": worst,
            "drained": tuple(done["drain"]),
            "deleted": tuple(done["delete"]),
            "error": "; ".join(kept),
        }
    )


def _sweep_one(world: World, plan: Plan, action: Action, sources: Sources) -> None:
    """Drain a worker, or disable it and delete its machine; raises where it has to stay."""
    if isinstance(action, Drain):
        _registry(sources, action.registry).drain(action.worker)
    elif isinstance(action, Delete):
        provider = next(pool.provider for pool in plan.pools if pool.pool == action.pool)
        keeper, machine = sources.keepers.get(provider or ""), _machine(world, action.worker)
        if keeper is None or machine is None:
            raise PlanRefused(
                f"no stack holds it, and fleet deletes machines of {provider} by their stack "
                "only; delete it in the provider's own console"
            )
        if action.registry is not None:
            registry = _registry(sources, action.registry)
            (registry.revoke if action.revokes else registry.disable)(action.worker)
        keeper.delete(machine.id)


def _registry(sources: Sources, name: str) -> Registry:
    if name not in sources.registries:
        raise PlanRefused(
            f"queue {name} can be read, but not be told to drain or disable a worker"
        )
    return sources.registries[name]


def _machine(world: World, name: str) -> Machine | None:
    listings = [each for each in world.providers.values() if isinstance(each, Listing)]
    machines = (machine for listing in listings for machine in listing.machines)
    return next((machine for machine in machines if machine.name == name), None)


def _joined(*outcomes: StackOutcome) -> tuple[StackOutcome, ...]:
    """Return one outcome per pool, where some of its machines are in its stack and some not."""
    by_pool: dict[str, StackOutcome] = {}
    for each in outcomes:
        first = by_pool.get(each.pool)
        by_pool[each.pool] = each if first is None else _both(first, each)
    return tuple(by_pool[pool] for pool in sorted(by_pool))


def _both(one: StackOutcome, other: StackOutcome) -> StackOutcome:
    results = {one.result, other.result}
    return StackOutcome(
        pool=one.pool,
        result=next(each for each in _WORST_FIRST if each in results),
        drained=one.drained + other.drained,
        deleted=one.deleted + other.deleted,
        error="; ".join(filter(None, (one.error, other.error))),
    )
