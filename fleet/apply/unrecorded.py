"""Delete machines without a stack, first at their queue, then at their provider."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Literal, NamedTuple

from fleet.apply.observe import Sources
from fleet.apply.pool import is_orphan, note_departures, retire_worker
from fleet.engines.parallel import run_steps
from fleet.errors import DeletionPending, FleetError, PlanRefused, WorkerBusy
from fleet.model.facts import Machine, World
from fleet.model.history import StackOutcome
from fleet.model.plan import Action, Delete, Drain, Plan
from fleet.ports import MachineApi, Registry, Tell

_Result = Literal["failed", "refused", "applied", "unchanged"]
_WORST_FIRST: tuple[_Result, ...] = ("failed", "refused", "applied", "unchanged")


def with_orphans(
    outcome: StackOutcome, world: World, plan: Plan, sources: Sources, tell: Tell
) -> StackOutcome:
    """Delete the pool's machines without a stack, and add the result to `outcome`."""
    orphans = [each for each in plan.actions if each.pool == outcome.pool and is_orphan(each)]
    if not orphans:
        return outcome
    return _combine(outcome, delete_unrecorded_machines(world, plan, orphans, sources, tell))


def delete_unrecorded_machines(
    world: World, plan: Plan, actions: Sequence[Action], sources: Sources, tell: Tell
) -> StackOutcome:
    """Drain or delete a pool's machines without a stack; return the result.

    Queues are called one after the other. Machines are deleted concurrently if their provider
    permits it.
    """
    done: set[str] = set()
    staying: dict[str, FleetError] = {}
    going: list[_PendingDeletion] = []

    def tell_of(action: Action, error: FleetError | None) -> None:
        if error:
            staying[action.worker] = error
        else:
            tell(f"{action.pool}: {action.action} {action.worker}")
            done.add(action.worker)

    note_departures(world, actions, sources.store)
    for action in actions:
        try:
            _check_stop(sources)
            if isinstance(action, Drain):
                _registry(sources, action.registry).drain(action.worker)
                tell_of(action, None)
            elif isinstance(action, Delete):
                going.append(_retire(world, plan, action, sources))
        except FleetError as error:
            tell_of(action, error)

    def delete(each: _PendingDeletion) -> None:
        _check_stop(sources)
        each.machine_api.delete(each.machine)

    pending: set[str] = set()
    machine_api = going[0].machine_api if going else None
    with closing(run_steps(machine_api, going, delete)) as ended:
        for each, trouble in ended:
            if isinstance(trouble, DeletionPending):
                pending.add(each.action.worker)
            else:
                tell_of(each.action, trouble)
    return StackOutcome(
        pool=actions[0].pool,
        result=_worst_result(staying.values()),
        drained=tuple(a.worker for a in actions if isinstance(a, Drain) and a.worker in done),
        deleted=tuple(a.worker for a in actions if isinstance(a, Delete) and a.worker in done),
        deleting=tuple(a.worker for a in actions if a.worker in pending),
        error="; ".join(
            f"{a.worker} not deleted: {staying[a.worker]}" for a in actions if a.worker in staying
        ),
    )


class _PendingDeletion(NamedTuple):
    """A machine to delete, whose worker is already disabled."""

    action: Delete
    machine_api: MachineApi
    machine: str


class _StopRequested(FleetError):
    """The user requested a stop, so that no further step starts."""


def _check_stop(sources: Sources) -> None:
    if sources.is_ending():
        raise _StopRequested("stopped by a signal")


def _retire(world: World, plan: Plan, action: Delete, sources: Sources) -> _PendingDeletion:
    """Release, revoke or disable a worker at its queue. Raises if its machine must be kept."""
    provider = next(pool.provider for pool in plan.pools if pool.pool == action.pool)
    machine_api = sources.machine_apis.get(provider or "")
    machine = machine_at(world, provider or "", action.worker)
    if machine_api is None or machine is None:
        raise PlanRefused(
            f"no stack holds it, and fleet deletes machines of {provider} only through their "
            "stack; delete it in the provider's console"
        )
    if action.registry is not None:
        retire_worker(_registry(sources, action.registry), action)
    return _PendingDeletion(action, machine_api, machine.id)


def _worst_result(errors: Iterable[FleetError]) -> _Result:
    """Return a pool's result given these errors. A busy worker or a stop is no failure."""
    met = [error for error in errors if not isinstance(error, WorkerBusy | _StopRequested)]
    if not met:
        return "applied"
    return "refused" if all(isinstance(error, PlanRefused) for error in met) else "failed"


def _registry(sources: Sources, name: str) -> Registry:
    if name not in sources.registries:
        raise PlanRefused(
            f"queue {name} is read-only, so fleet cannot drain or disable its workers"
        )
    return sources.registries[name]


def machine_at(world: World, provider: str, name: str) -> Machine | None:
    """Return the machine of this name in a provider's listing; None if it is not listed."""
    named = (m for at, m in world.machines() if at == provider and m.name == name)
    return next(named, None)


def by_pool(outcomes: Iterable[StackOutcome]) -> dict[str, StackOutcome]:
    """Map pool to outcome, combined from machines inside and outside a stack."""
    found: dict[str, StackOutcome] = {}
    for each in outcomes:
        found[each.pool] = _combine(found[each.pool], each) if each.pool in found else each
    return found


def _combine(one: StackOutcome, other: StackOutcome) -> StackOutcome:
    """Return the combined outcome of two steps on a pool."""
    results = {one.result, other.result}
    return one.altered(
        result=next(each for each in _WORST_FIRST if each in results),
        created=one.created + other.created,
        drained=one.drained + other.drained,
        deleted=one.deleted + other.deleted,
        deleting=one.deleting + other.deleting,
        forgotten=one.forgotten + other.forgotten,
        cleaned=one.cleaned + other.cleaned,
        error="; ".join(filter(None, (one.error, other.error))),
    )
