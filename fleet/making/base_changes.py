"""This module says what of a base stack would be made, changed and removed, and where it may not.

What an engine can only change by making it anew counts as changed here; the engine knows it.
"""

from collections.abc import Collection, Iterator

from fleet.facts import Unknown, World
from fleet.facts.bases import Base, BaseChange
from fleet.making.shared import is_laid, made_without, wanted_parts
from fleet.schema.model import Fleet
from fleet.schema.pools import Pool


def find_base_changes(fleet: Fleet, world: World) -> Iterator[BaseChange]:
    """Yield what the next apply does to the base of each provider; nothing where it is laid."""
    for name in sorted(fleet.providers):
        base = world.bases.get(name)
        if isinstance(base, Unknown) or why_held(fleet, name):
            continue
        wanted = {part.key: part for part in wanted_parts(fleet, world, name)}
        if base is None and not wanted:
            continue
        known = base or Base(serial=0)
        if base is None or not is_laid(known, wanted.values()):
            recorded = {part.key: part for part in known.parts}
            new = tuple(key for key in wanted if key not in known.ids)
            yield BaseChange(
                provider=name,
                create=new,
                change=tuple(
                    key for key in wanted if key in known.ids and wanted[key] != recorded.get(key)
                ),
                delete=tuple(sorted(known.ids.keys() - wanted.keys())),
                outdates=made_without(world, name, new),
            )


def why_held(fleet: Fleet, name: str, ordered: Collection[str] = ()) -> str:
    """Return why a base is left alone; nothing where some pool of its provider may be changed.

    Where pools are `ordered`, no other may be.
    """
    modes = {
        pool: each.mode
        for pool, each in fleet.pools.items()
        if isinstance(each, Pool) and each.provider == name and pool in (ordered or fleet.pools)
    }
    if ordered and not modes:
        return "no pool that --pool names is of this provider"
    if modes and set(modes.values()) <= {"observe", "pause"}:
        return ", ".join(f"{pool} is in mode {mode}" for pool, mode in sorted(modes.items()))
    return ""
