"""Remove the locks of a fleet and of its stacks that killed runs left."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from fleet.apply.state_file import Name, stacks_of
from fleet.engines.pulumi_backends import open_objects
from fleet.engines.pulumi_state import drop_locks, find_locks
from fleet.errors import PlanRefused
from fleet.ports import Console
from fleet.schema.model import Fleet
from fleet.state.storage import Storage
from fleet.state.store import Store


class HeldLock(NamedTuple):
    """A lock with its owner, its start, the owner's liveness, and a function to remove it."""

    what: str
    owner: str
    since: str
    alive: bool | None
    release: Callable[[], None]


def unlock(
    fleet: Fleet, store: Store, storage: Storage, dead: str | None, console: Console
) -> int:
    """Remove the locks of killed runs, and of the owner `dead`; raise PlanRefused for others."""
    names = stacks_of(fleet, store.stacks())
    locks = (*_find_fleet_lock(fleet.fleet, store), *_find_stack_locks(names, storage))
    kept = []
    for held in locks:
        if held.alive is False or (held.alive is None and held.owner == dead):
            held.release()
            console.out(f"removed {held.what}, held by {held.owner} since {held.since}")
        else:
            kept.append(_explain_kept_lock(held))
    if kept:
        raise PlanRefused("; ".join(kept))
    if not locks:
        console.out("no lock is held")
    return 0


def _find_fleet_lock(fleet: str, store: Store) -> Iterator[HeldLock]:
    holder = store.lock_holder()
    if holder:
        owner, since = holder
        yield HeldLock(
            f"the lock of fleet {fleet}",
            owner,
            since,
            store.is_held(),
            partial(store.unlock, owner),
        )


def _find_stack_locks(names: Iterable[Name], storage: Storage) -> Iterator[HeldLock]:
    """Yield the locks of Pulumi stacks. The kernel releases locks of the embedded engine."""
    objects = open_objects(storage.backend)
    if objects is None:
        return
    for project, name in names:
        for lock in find_locks(objects, project, name):
            yield HeldLock(
                f"the lock of stack {name}",
                lock.owner,
                lock.since,
                lock.alive,
                partial(drop_locks, objects, [lock]),
            )


def _explain_kept_lock(held: HeldLock) -> str:
    whose = f"{held.what} is held by {held.owner} since {held.since}"
    if held.alive:
        return f"{whose}, and that process is running: wait for it"
    return (
        f"{whose}; cannot tell from here whether that process runs; if it is dead: fleet state "
        f"unlock --holder '{held.owner}'"
    )
