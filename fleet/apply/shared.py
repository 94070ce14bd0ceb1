"""Apply the shared resources of a provider's machines, before planning.

A resource in use is neither deleted nor replaced. Selections and the modes of pools apply: if no
pool of a provider may change, its shared resources do not change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from fleet.apply.observe import Sources, base_ref
from fleet.apply.saved_plan import Selection, find_changes, selected_part
from fleet.errors import FleetError, PlanRefused, StackFailed
from fleet.model.facts import Base, SharedResource, Unknown, World
from fleet.model.history import StackOutcome
from fleet.model.plan import Plan
from fleet.planner.inventory import is_all_frozen
from fleet.planner.shared_stacks import in_use, is_laid, parts_of, wanted_parts, why_held
from fleet.ports import StackStep, Tell
from fleet.schema.model import Fleet

_ADDITIONAL_RESOURCES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"network": ("subnet",), "template": ("group", "role", "profile")}
)
"""Kind of resource to the additional resources in its stack, which are named NAME-ADDITIONAL."""
Lay = Callable[[World], tuple[World, tuple[StackOutcome, ...]]]


def apply_shared_stacks(
    fleet: Fleet, world: World, sources: Sources, tell: Tell, selection: Selection | None = None
) -> tuple[World, tuple[StackOutcome, ...]]:
    """Apply the shared stacks of providers; return the new world and the failures.

    Only stacks that the selection permits are applied, and none if all pools are frozen. Without a
    selection, as in a rebuild, all shared stacks are applied.
    """
    if selection is not None and is_all_frozen(fleet, world):
        return world, ()
    troubles = []
    for name in sorted(sources.bases):
        parts = _find_wanted(fleet, world, name, tell)
        held = why_held(fleet, name, selection.pools) if selection else ""
        if parts is None:
            continue
        if held:
            tell(f"base of {name}: change postponed: {held}")
            continue
        engine, ref = sources.bases[name], base_ref(fleet, name)

        def progress(step: StackStep, name: str = name) -> None:
            tell(f"base of {name}: {step.operation} {step.worker}")

        try:
            _check(world, name, engine.preview(ref, parts), parts)
            engine.up(ref, parts, progress)
        except FleetError as trouble:
            result = "refused" if isinstance(trouble, PlanRefused) else "failed"
            what = f"(base of {name})"
            left = ", ".join(sorted(trouble.failed)) if isinstance(trouble, StackFailed) else ""
            error = f"{trouble}; not done: {left}" if left else str(trouble)
            troubles.append(
                StackOutcome.model_validate({"pool": what, "result": result, "error": error})
            )
        # Read it even after a failure, since machines must not use a deleted resource.
        base = engine.read(ref)
        bases = {key: each for key, each in world.bases.items() if key != name}
        world = world.altered(bases=bases if base is None else bases | {name: base})
    return world, tuple(troubles)


def apply_shared_stacks_of_saved(
    selection: Selection, world: World, lay: Lay, plan: Callable[[World], Plan]
) -> tuple[World, tuple[StackOutcome, ...], tuple[str, ...]]:
    """Apply the shared stacks of a saved plan; also return why the plan is now outdated.

    The next plan uses new resources; the saved plan may name replaced or deleted resources.
    """
    laid, troubles = lay(world)
    was, now = _ids(world), _ids(laid)
    if was.items() <= now.items():
        return laid, troubles, ()
    # The changes of base stacks in the saved plan are done, so they are no difference.
    said = selection.saved.bases if selection.saved else ()
    now_planned = plan(laid).altered(bases=said)
    return laid, troubles, find_changes(selection, selected_part(selection, now_planned))


def _ids(world: World) -> dict[tuple[str, str], str]:
    return {
        (name, key): part_id
        for name, base in world.bases.items()
        if isinstance(base, Base)
        for key, part_id in base.ids.items()
    }


def _find_wanted(
    fleet: Fleet, world: World, name: str, tell: Tell
) -> tuple[SharedResource, ...] | None:
    """Return the resources that a shared stack should have; None if no change is due or safe."""
    base = world.bases.get(name)
    parts = wanted_parts(fleet, world, name)
    if isinstance(base, Unknown):
        return None  # no machine that needs this base stack is planned
    used = in_use(world, name)
    why = f"its users are unknown ({used.unknown})" if isinstance(used, Unknown) else "in use"
    declared = {part.key for part in parts_of(fleet, name)}
    for part in parts:
        if part.key not in declared:
            tell(f"{part.key} is no longer in fleet.yaml, but kept: {why}")
    if (base is None and not parts) or (base is not None and is_laid(base, parts)):
        return None
    return parts


def _check(
    world: World, name: str, steps: Sequence[StackStep], parts: Sequence[SharedResource]
) -> None:
    """Raise PlanRefused if used or foreign resources would be deleted or replaced."""
    base, used = world.bases.get(name), in_use(world, name)
    ids = base.ids if isinstance(base, Base) else {}
    taking = [step for step in steps if step.operation in {"replace", "delete"}]
    if isinstance(used, Unknown):
        blocked = {step.worker for step in steps}
        why = f"its users are unknown: {used.unknown}"
    else:
        blocked = _resource_names(key for key in ids if key in used)
        why = "machines use it; drain their pools first, or revert the change"
    ours = _resource_names([*ids, *(part.key for part in parts)])
    if any(step.worker not in ours for step in taking):
        blocked = {step.worker for step in taking} - ours
        why = "fleet did not create it; move it to another stack"
    wrong = [step for step in taking if step.worker in blocked]
    if wrong:
        what = "; ".join(f"{step.operation} {step.worker}" for step in wrong)
        raise PlanRefused(
            f"refused, the base of provider {name} was not changed: it would {what}, and {why}"
        )


def _resource_names(keys: Iterable[str]) -> set[str]:
    """Return the names of the resources with these keys in a shared stack."""
    names: set[str] = set()
    for key in keys:
        kind, _, name = key.partition("/")
        names |= {name, *(f"{name}-{what}" for what in _ADDITIONAL_RESOURCES.get(kind, ()))}
    return names
