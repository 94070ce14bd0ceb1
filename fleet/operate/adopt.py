"""This module takes machines that exist into a pool's stack: marked first, then recorded.

Neither step starts, stops, renames or replaces anything. Nothing is marked before the engine has
shown that it can record. A run that was killed in between leaves marked machines that no stack
knows, which nothing deletes; the same command finishes it.
"""

from collections.abc import Sequence

from fleet.adoption import Adopted, Adoption
from fleet.errors import PlanRefused, StackFailed
from fleet.facts import Listing, Stack, Unknown
from fleet.operate.observe import Sources
from fleet.plan.outcome import StackOutcome
from fleet.ports import Adopter, Engine, StackRef, Step, Tell
from fleet.ports.store import StackRecord


def adopt_machines(
    ref: StackRef, adoption: Adoption, adopter: Adopter, sources: Sources, tell: Tell
) -> StackOutcome:
    """Mark and record machines; PlanRefused where the engine would do anything but record them."""
    engine = sources.engine_of(adoption.provider)
    before = _read(engine, ref)
    sources.store.record_stack(_record(ref, engine, before))
    if before is None:
        # What exists is looked for only beside a stack that does.
        engine.up(ref, (), lambda _: None)
    recorded = before.workers if before else ()
    workers = sorted((*recorded, *(a.inputs for a in adoption.machines)), key=lambda w: w.name)
    names = tuple(each.machine.name for each in adoption.machines)
    _check_preview(engine.preview(ref, workers), names, "nothing was marked")
    for each in adoption.machines:
        adopter.mark(each.machine.id, each.inputs)
        tell(f"{adoption.pool}: marked {each.machine.name}")
    _check_marked(adoption, sources)
    # Nothing is given to them, so that the engine makes none that is gone by now.
    given = dict.fromkeys(names, "")
    with engine.prepare(ref, workers) as change:
        _check_preview(change.steps, names, "the machines are marked and not recorded")
        change.make(lambda step: tell(f"{adoption.pool}: recorded {step.worker}"), given)
    after = _read(engine, ref)
    sources.store.record_stack(_record(ref, engine, after))
    _check_recorded(after, adoption.machines)
    return StackOutcome(pool=adoption.pool, result="applied", adopted=names)


def _read(engine: Engine, ref: StackRef) -> Stack | None:
    stack = engine.read(ref)
    if isinstance(stack, Unknown):
        raise PlanRefused(f"refused, nothing was changed: stack {ref.name}: {stack.unknown}")
    return stack


def _check_marked(adoption: Adoption, sources: Sources) -> None:
    """Refuse unless the provider lists every machine as marked: else another might be made."""
    listing = sources.providers[adoption.provider].list(adoption.fleet)
    listed = listing.machines if isinstance(listing, Listing) else ()
    marks = {(each.name, each.id, each.pool, each.digest) for each in listed}
    for adopted in adoption.machines:
        machine, digest = adopted.machine, adopted.inputs.labels["digest"]
        if (machine.name, machine.id, adoption.pool, digest) not in marks:
            said = f": {listing.unknown}" if isinstance(listing, Unknown) else ""
            raise PlanRefused(
                f"provider {adoption.provider} does not list {machine.name} as marked{said}; it "
                "was not recorded; run the same command again to go on"
            )


def _check_preview(steps: Sequence[Step], names: Sequence[str], left: str) -> None:
    """Refuse unless the engine is about to record these machines and nothing else."""
    planned = {(name, "create") for name in names}
    previewed = {(step.worker, step.operation) for step in steps}
    if previewed != planned:
        said = ", ".join(f"{what} {name}" for name, what in sorted(previewed - planned))
        lacking = ", ".join(name for name, _ in sorted(planned - previewed))
        raise PlanRefused(
            f"the engine would {said or 'do nothing'}"
            f"{f' and not record {lacking}' if lacking else ''}; {left}; `fleet apply` first, "
            "then run the same command again"
        )


def _record(ref: StackRef, engine: Engine, stack: Stack | None) -> StackRecord:
    return StackRecord(
        name=ref.name,
        pool=ref.pool,
        provider=ref.provider,
        project=ref.project,
        engine=engine.name,
        serial=stack.serial if stack else 0,
    )


def _check_recorded(stack: Stack | None, machines: Sequence[Adopted]) -> None:
    """See that what was recorded are these machines and not others of their names."""
    ids = stack.ids if stack else {}
    for each in machines:
        if ids.get(each.machine.name) != each.machine.id:
            raise StackFailed(
                f"{each.machine.name}: the stack holds {ids.get(each.machine.name) or 'none'} "
                f"in place of {each.machine.id}; look at both at the provider"
            )
