"""This module finds what was made from something else than today's config and images.

A machine is outdated when the digest of what made it is not today's, by none of the ways in which
the pool makes machines now. What only steers behaviour (limits, budgets, guards, times, mode, the
pool's name) is not in that digest. Where a pool makes no machine at all, nothing can take the
place of what it has, so that nothing is outdated there.
"""

from fleet.census import Unit
from fleet.draft import Draft
from fleet.plan import Reason


def mark_outdated(draft: Draft) -> None:
    """Note which machines are due to be replaced because they are outdated."""
    for unit in draft.census.units:
        if draft.is_outdated(unit):
            draft.due.setdefault(unit.name, (Reason.OUTDATED, _what_changed(draft, unit)))


def _what_changed(draft: Draft, unit: Unit) -> str:
    """Say in which way a machine differs from those that are made today."""
    images = sorted({option.image for option in draft.options})
    if unit.machine and unit.machine.image and unit.machine.image not in images:
        return f"it boots image {unit.machine.image}, today's is {' or '.join(images)}"
    types = list(dict.fromkeys(option.type for option in draft.options))
    if unit.machine and unit.machine.type not in types:
        return f"its machine type is {unit.machine.type}, today's is {' or '.join(types)}"
    return "it was made from another configuration than today's"
