"""This module finds what has grown too old or was used too often; `retire` says where that begins.

Age counts from the creation of the machine. Both are replaced like what is outdated: a share at
a time, in the pool's windows, and only when their work has ended.
"""

from collections.abc import Iterator

from fleet.census.units import Unit
from fleet.draft import Draft
from fleet.facts import World
from fleet.plan import Reason
from fleet.schema.model import Retire
from fleet.schema.units import write_count, write_duration


def mark_worn(world: World, draft: Draft) -> None:
    """Note which machines are due to be replaced because they are worn out."""
    if draft.pool is None:
        return
    for unit in draft.census.units:
        for why in _ways(world, draft.pool.retire, unit):
            draft.due.setdefault(unit.name, why)


def _ways(world: World, retire: Retire, unit: Unit) -> Iterator[tuple[Reason, str]]:
    """Yield in which ways a unit is worn out."""
    if retire.max_age is not None and unit.machine is not None:
        age = int((world.time - unit.machine.created_at).total_seconds())
        if age >= retire.max_age:
            most = write_duration(retire.max_age)
            yield (
                Reason.MAX_AGE,
                f"its machine is {write_duration(age)} old, retire.max_age is {most}",
            )
    uses = unit.worker.uses if unit.worker else None
    if retire.max_uses is not None and uses is not None and uses >= retire.max_uses:
        finished = write_count(uses, "request")
        because = f"it has finished {finished}, retire.max_uses is {retire.max_uses}"
        yield Reason.MAX_USES, because
