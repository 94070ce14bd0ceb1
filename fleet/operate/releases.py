"""This module switches off the workers whose machines are gone, before anything else is done.

Guards may have kept some of them back; what an approval let pass is used up first, and taken back
where it was not done.
"""

from fleet.errors import FleetError
from fleet.operate.observe import Sources
from fleet.operate.spending import refund, spend
from fleet.plan import Plan, Release
from fleet.ports import Tell


def release_all(plan: Plan, sources: Sources, tell: Tell) -> tuple[str, ...]:
    """Release what the plan says, and return what was; the next run does what cannot be done."""
    return tuple(
        each.worker
        for each in plan.releases
        if each.registry in sources.registries and _release(plan, each, sources, tell)
    )


def _release(plan: Plan, each: Release, sources: Sources, tell: Tell) -> bool:
    approvals = [known for known in plan.approvals if each.worker in known.passes]
    try:
        spent = spend(sources.store, approvals, (each,), None)
        try:
            sources.registries[each.registry].release(each.worker)
        except FleetError:
            refund(sources.store, spent, frozenset({each.worker}))
            raise
    except FleetError as trouble:
        tell(f"{each.worker} was not released: {trouble}")
        return False
    tell(f"{each.pool}: release {each.worker}: {each.because}")
    return True
