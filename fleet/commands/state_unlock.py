"""This module takes locks away from runs that died: the fleet's own, and those of its stacks."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from fleet.commands.state_stacks import Name, stacks_of
from fleet.engines.backends import open_objects
from fleet.engines.pulumi_locks import drop_locks, find_locks
from fleet.errors import PlanRefused
from fleet.ports import Console
from fleet.schema.model import Fleet
from fleet.store.database import DatabaseStore
from fleet.store.places import Places


class Held(NamedTuple):
    """A lock, who holds it, and how it is taken away."""

    what: str
    owner: str
    since: str
    alive: bool | None
    release: Callable[[], None]


def unlock(
    fleet: Fleet, store: DatabaseStore, places: Places, dead: str | None, console: Console
) -> int:
    """Take away what the dead hold; `dead` is a holder of whom a person knows that it is."""
    names = stacks_of(fleet, store.stacks())
    locks = (*_of_the_fleet(fleet.fleet, store), *_of_stacks(names, places))
    kept = []
    for held in locks:
        if held.alive is False or (held.alive is None and held.owner == dead):
            held.release()
            console.out(f"took {held.what} away from {held.owner}, who held it since {held.since}")
        else:
            kept.append(_why_kept(held))
    if kept:
        raise PlanRefused("; ".join(kept))
    if not locks:
        console.out("nobody holds the lock")
    return 0


def _of_the_fleet(fleet: str, store: DatabaseStore) -> Iterator[Held]:
    holder = store.lock_holder()
    if holder:
        owner, since = holder
        yield Held(
            f"the lock of fleet {fleet}",
            owner,
            since,
            store.is_held(),
            partial(store.unlock, owner),
        )


def _of_stacks(names: Iterable[Name], places: Places) -> Iterator[Held]:
    """Yield the locks that the real engine left; of the embedded one the kernel keeps none."""
    objects = open_objects(places.backend)
    if objects is None:
        return
    for project, name in names:
        for lock in find_locks(objects, project, name):
            yield Held(
                f"the lock of stack {name}",
                lock.owner,
                lock.since,
                lock.alive,
                partial(drop_locks, objects, [lock]),
            )


def _why_kept(held: Held) -> str:
    whose = f"{held.what} is held by {held.owner} since {held.since}"
    if held.alive:
        return f"{whose}, and that process lives: wait for it to end"
    return (
        f"{whose}, and whether that process lives cannot be told from here: look where it ran, "
        f"and when it is dead: fleet state unlock --holder '{held.owner}'"
    )
