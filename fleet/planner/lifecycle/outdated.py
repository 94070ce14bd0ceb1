"""This module finds what was made from something else than today's config and images.

A machine is outdated when the digest of what made it is not today's, by none of the ways in which
the pool makes machines now. What only steers behaviour (limits, budgets, guards, times, mode, the
pool's name) is not in that digest. Where a pool makes no machine at all, nothing can take the
place of what it has, so that nothing is outdated there.

Age counts from the creation of the machine. Both are replaced like what is outdated: a share at
a time, in the pool's windows, and only when their work has ended.
"""

from collections.abc import Iterator

from fleet.model.facts import World
from fleet.model.plan import Reason
from fleet.planner.lifecycle.replace import replaceable
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import Unit
from fleet.schema.model import Retire
from fleet.schema.units import write_count, write_duration


def mark_outdated(pool_plan: PoolPlan) -> None:
    """Note which machines are due to be replaced because they are outdated."""
    for unit in pool_plan.inventory.units:
        if pool_plan.is_outdated(unit):
            pool_plan.due.setdefault(unit.name, (Reason.OUTDATED, _what_changed(pool_plan, unit)))
    because = f"a candidate of its image takes {pool_plan.choice.share}% of the pool's workers"
    for unit in _in_the_way(pool_plan):
        pool_plan.due.setdefault(unit.name, (Reason.OUTDATED, because))


def _in_the_way(pool_plan: PoolPlan) -> list[Unit]:
    """Return the workers that give way to a candidate, in their turn, until it has its share.

    What is due anyhow is replaced in the same way, by the candidate first. Of a candidate that
    has more than its share, after the pool shrank, none is replaced.
    """
    if not (pool_plan.choice.candidate and pool_plan.digests):
        return []
    there, at_work = pool_plan.canaries
    others = [unit for unit in replaceable(pool_plan) if not pool_plan.is_canary(unit)]
    fresh = [unit for unit in others if unit.name not in pool_plan.due]
    lacking = pool_plan.choice.share_of(at_work) - there - (len(others) - len(fresh))
    return fresh[: max(0, lacking)]


def _what_changed(pool_plan: PoolPlan, unit: Unit) -> str:
    """Say in which way a machine differs from those that are made today."""
    images = sorted({option.image for option in pool_plan.options})
    if unit.machine and unit.machine.image and unit.machine.image not in images:
        name_of = pool_plan.choice.name_of
        today = " or ".join(map(name_of, images))
        return f"boots image {name_of(unit.machine.image)}, current is {today}"
    types = list(dict.fromkeys(option.type for option in pool_plan.options))
    if unit.machine and unit.machine.type not in types:
        return f"machine type is {unit.machine.type}, current is {' or '.join(types)}"
    return "created from an older configuration"


def mark_worn(world: World, pool_plan: PoolPlan) -> None:
    """Note which machines are due to be replaced because they are worn out."""
    if pool_plan.pool is None:
        return
    for unit in pool_plan.inventory.units:
        for why in _ways(world, pool_plan.pool.retire, unit):
            pool_plan.due.setdefault(unit.name, why)


def _ways(world: World, retire: Retire, unit: Unit) -> Iterator[tuple[Reason, str]]:
    """Yield in which ways a unit is worn out."""
    if retire.max_age is not None and unit.machine is not None:
        age = int((world.time - unit.machine.created_at).total_seconds())
        if age >= retire.max_age:
            most = write_duration(retire.max_age)
            yield (
                Reason.MAX_AGE,
                f"machine is {write_duration(age)} old, retire.max_age is {most}",
            )
    uses = unit.worker.uses if unit.worker else None
    if retire.max_uses is not None and uses is not None and uses >= retire.max_uses:
        finished = write_count(uses, "request")
        because = f"finished {finished}, retire.max_uses is {retire.max_uses}"
        yield Reason.MAX_USES, because
