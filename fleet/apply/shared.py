"""Apply what the machines of a provider share, before anything is planned.

What machines still use is neither deleted nor replaced. A selection and the modes of pools hold
here too: where no pool of a provider may be changed, what its machines share stays as it is.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from fleet.apply.observe import Sources, base_ref
from fleet.apply.selection import Selection, find_changes, selected_part
from fleet.errors import FleetError, PlanRefused, StackFailed
from fleet.model.facts import Base, Part, Unknown, World
from fleet.model.outcome import StackOutcome
from fleet.model.plan import Plan
from fleet.planner.shared_stacks import in_use, is_laid, parts_of, wanted_parts, why_held
from fleet.ports import SharedStackEngine, StackRef, Step, Tell
from fleet.schema.model import Fleet

_BESIDE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"network": ("subnet",), "template": ("group", "role", "profile")}
)
"""Kind of a part to what its stack's program makes beside it, as PART-WHAT."""
Lay = Callable[[World], tuple[World, tuple[StackOutcome, ...]]]


def apply_shared_stacks(
    fleet: Fleet, world: World, sources: Sources, tell: Tell, selection: Selection | None = None
) -> tuple[World, tuple[StackOutcome, ...]]:
    """Return the world with the bases as fleet.yaml wants them, and what went wrong with which.

    Only those that the selection lets change; without one, as in a rebuild, every base.
    """
    troubles = []
    for name in sorted(sources.bases):
        parts = _asked(fleet, world, name, tell)
        held = why_held(fleet, name, selection.pools) if selection else ""
        if parts is None:
            continue
        if held:
            tell(f"base of {name}: change postponed: {held}")
            continue
        engine, ref = sources.bases[name], base_ref(fleet, name)
        try:
            _lay(world, engine, ref, parts, tell)
        except FleetError as trouble:
            result = "refused" if isinstance(trouble, PlanRefused) else "failed"
            what = f"(base of {name})"
            left = ", ".join(sorted(trouble.failed)) if isinstance(trouble, StackFailed) else ""
            error = f"{trouble}; not done: {left}" if left else str(trouble)
            troubles.append(
                StackOutcome.model_validate({"pool": what, "result": result, "error": error})
            )
        # Also where it failed: a part may be gone, and no machine can be given it.
        world = _with(world, name, engine.read(ref))
    return world, tuple(troubles)


def apply_shared_stacks_of_saved(
    selection: Selection, world: World, lay: Lay, plan: Callable[[World], Plan]
) -> tuple[World, tuple[StackOutcome, ...], tuple[str, ...]]:
    """Lay the bases under a saved plan, and tell too how it is outdated by that.

    What is new waits for the next plan; the saved one may still name what is replaced or gone.
    """
    laid, troubles = lay(world)
    was, now = _ids(world), _ids(laid)
    if was.items() <= now.items():
        return laid, troubles, ()
    # What the saved plan says of bases is done by now: that is no difference.
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


def _asked(fleet: Fleet, world: World, name: str, tell: Tell) -> tuple[Part, ...] | None:
    """Return what a base has to hold; None where it does already, or where that is unknown."""
    base = world.bases.get(name)
    parts = wanted_parts(fleet, world, name)
    if isinstance(base, Unknown):
        return None  # nothing rests on it: new machines that need it are not planned
    used = in_use(world, name)
    because = f"its users are unknown ({used.unknown})" if isinstance(used, Unknown) else "in use"
    for kept in _kept(fleet, name, parts):
        tell(f"{kept} is no longer in fleet.yaml, but kept: {because}")
    if (base is None and not parts) or (base is not None and is_laid(base, parts)):
        return None
    return parts


def _lay(
    world: World, engine: SharedStackEngine, ref: StackRef, parts: tuple[Part, ...], tell: Tell
) -> None:
    name = ref.provider
    _check(world, name, engine.preview(ref, parts), parts)
    engine.up(ref, parts, lambda step: tell(f"base of {name}: {step.operation} {step.worker}"))


def _with(world: World, name: str, base: Base | Unknown | None) -> World:
    bases = {key: each for key, each in world.bases.items() if key != name}
    if base is not None:
        bases[name] = base
    return world.altered(bases=bases)


def _kept(fleet: Fleet, name: str, parts: Sequence[Part]) -> Iterator[str]:
    declared = {part.key for part in parts_of(fleet, name)}
    return (part.key for part in parts if part.key not in declared)


def _check(world: World, name: str, steps: Sequence[Step], parts: Sequence[Part]) -> None:
    """Refuse what would take away what machines use or no part holds, before it is done."""
    base, used = world.bases.get(name), in_use(world, name)
    ids = base.ids if isinstance(base, Base) else {}
    taking = [step for step in steps if step.operation in {"replace", "delete"}]
    if isinstance(used, Unknown):
        blocked = {step.worker for step in steps}
        because = f"its users are unknown: {used.unknown}"
    else:
        blocked = _held_by(key for key in ids if key in used)
        because = "machines use it; drain their pools first, or revert the change"
    ours = _held_by([*ids, *(part.key for part in parts)])
    if any(step.worker not in ours for step in taking):
        blocked = {step.worker for step in taking} - ours
        because = "fleet did not create it; move it to another stack"
    wrong = [step for step in taking if step.worker in blocked]
    if wrong:
        what = "; ".join(f"{step.operation} {step.worker}" for step in wrong)
        raise PlanRefused(
            f"refused, the base of provider {name} was not changed: it would {what}, and {because}"
        )


def _held_by(keys: Iterable[str]) -> set[str]:
    """Return the names of the resources that parts come to."""
    names: set[str] = set()
    for key in keys:
        kind, _, name = key.partition("/")
        names |= {name, *(f"{name}-{what}" for what in _BESIDE.get(kind, ()))}
    return names
