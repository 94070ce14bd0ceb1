"""This module says what of a fleet goes because no run of `fleet apply` vouches for it any more.

The same rules hold as anywhere: what is not known to be idle stays, a worker is drained before
its machine is deleted, and a pool in mode: pause stays as it is. Only that its stack is lost
keeps no expired machine: then its provider's own listing is the witness.
"""

from collections.abc import Iterator
from dataclasses import replace

from fleet.catalogue.listed import with_price_lists
from fleet.census import PoolCensus, take_census
from fleet.census.expiry import expired_at
from fleet.census.units import Unit
from fleet.draft import Draft, is_going
from fleet.draft.staffing import Service
from fleet.facts import Listing, Unknown, World
from fleet.plan import Plan, Reason
from fleet.plan.digests import seal
from fleet.schema.model import Fleet, Pool
from fleet.schema.units import write_duration
from fleet.tagrules import serves_queue
from fleet.verdicts import Decided, assemble

_SAID = "a sweep looks at what expired, not at what waits"


def sweep(fleet: Fleet, world: World) -> Plan:
    """Return the plan that lets go of expired machines, and of nothing else."""
    fleet = with_price_lists(fleet, world)
    drafts: dict[str, Draft] = {}
    lost: list[str] = []
    for name, census in take_census(fleet, world).items():
        if _is_lost(world, name) and not _unread(census):
            lost += census.blind
            census = replace(census, blind=(), frozen=())  # noqa: PLW2901 - as if it were there
        pool = fleet.pools.get(name)
        draft = Draft(
            fleet=fleet,
            census=census,
            pool=pool if isinstance(pool, Pool) else None,
            names=iter(()),
            closed="a sweep makes none",
        )
        for unit in census.units:
            _let_go(world, draft, unit)
        drafts[name] = draft
    plan = assemble(fleet, world, drafts, Decided((), Service()))
    pools = tuple(pool.model_copy(update={"because": _SAID}) for pool in plan.pools)
    unknown = (*plan.unknown, *(f"{reason} (swept by its provider's listing)" for reason in lost))
    said = {"pools": pools, "unknown": tuple(dict.fromkeys(unknown)), "releases": ()}
    return seal(plan.model_copy(update=said))


def _is_lost(world: World, pool: str) -> bool:
    """Say whether a pool's stack cannot be read; its machines can still be swept."""
    stacks = world.stacks
    return isinstance(stacks, Unknown) or isinstance(stacks.get(pool), Unknown)


def _unread(census: PoolCensus) -> tuple[str, ...]:
    """Return what else than the stack is not known of a pool."""
    return tuple(reason for reason in census.frozen if reason not in census.blind)


def _let_go(world: World, draft: Draft, unit: Unit) -> None:
    """Take the next step of letting an expired machine go, or note why it stays."""
    end = unit.machine and expired_at(draft.fleet, world, draft.census.provider, unit.machine)
    if not end:
        return
    age = write_duration(int((world.time - end).total_seconds()))
    because = f"it expired {age} ago: no run of fleet apply vouches for it"
    if stop := next(_stops(world, draft, unit), ""):
        draft.kept[unit.name] = (Reason.EXPIRED, f"{because}; it stays: {stop}")
    elif unit.worker is None or (is_going(unit) and not unit.may_run):
        draft.delete(unit, Reason.EXPIRED, because)
    elif not is_going(unit):
        draft.drain(unit, Reason.EXPIRED, because)


def _stops(world: World, draft: Draft, unit: Unit) -> Iterator[str]:
    """Yield why an expired machine may not go yet."""
    census = draft.census
    yield from (*_unread(census), *census.blind)
    if draft.pool is not None and draft.pool.mode == "pause":
        yield "its pool has mode: pause"
    if unit.worker is None and not _is_heard(draft.fleet, world, census):
        yield "no registry says whether its worker is busy"
    if unit.awaits_token and census.tokens is None:
        yield "its token cannot be taken back: its worker might still register"


def _is_heard(fleet: Fleet, world: World, census: PoolCensus) -> bool:
    """Say whether every registry was read that a worker of a pool could be registered at."""
    listing = world.providers.get(census.provider)
    if isinstance(listing, Listing) and listing.workers is not None:
        return True
    pool = fleet.pools.get(census.pool)
    readings = [
        reading.workers
        for queue, reading in world.queues.items()
        if not isinstance(pool, Pool) or serves_queue(pool, queue)
    ]
    return bool(readings) and all(isinstance(workers, tuple) for workers in readings)
