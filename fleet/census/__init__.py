"""This module joins the witnesses: what each pool really has, and what is not known of it.

A machine has two witnesses, the provider's listing and the stack's state; what only one of
them saw is kept, counted to the pool's max, and never deleted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from fleet.census.estimates import estimate_of
from fleet.census.freshness import stale_demand
from fleet.census.readiness import is_overdue
from fleet.census.registrations import enrols_at, queue_registries, registries_of, revokes_at
from fleet.census.sightings import Seen
from fleet.census.units import Sightings, State, Unit, registered_state, units_of
from fleet.facts import Listing, Stack, Unknown, Worker, World
from fleet.schema.model import Fleet, Pool
from fleet.tagrules import serves_queue
from fleet.tickets.desk import desks_of

_NOT_READ = Unknown(unknown="it was not read in this run")


@dataclass(frozen=True)
class PoolCensus:
    """What one pool has; `frozen` forbids deletions, `blind` forbids creations too."""

    pool: str
    provider: str
    units: tuple[Unit, ...] = ()
    unseen: tuple[Unit, ...] = ()
    """What its stack holds, and registries tell of, where its provider could not be read."""
    uncounted: int = 0
    """How many machines it may hold where neither its provider nor its stack could be read."""
    frozen: tuple[str, ...] = ()
    sampled: tuple[str, ...] = ()
    """Queues of which not all is known that waits: nothing goes for want of work."""
    blind: tuple[str, ...] = ()
    stack: Stack | None = None
    listed: bool = True
    """False where its provider's machines could not be read: that is not the same as none."""
    tokens: str | None = None
    """Where the token of a worker that never registered can be revoked; None: nowhere."""
    has_registry: bool = True
    """False where nobody at all can be asked what its workers do."""
    enrols: str | None = None
    """The queue that a new worker needs a token of; None: it registers at its provider."""

    def having(self, *states: State) -> tuple[Unit, ...]:
        """Return the units in one of these states, sorted by name."""
        return tuple(unit for unit in self.units if unit.state in states)


def take_census(fleet: Fleet, world: World) -> dict[str, PoolCensus]:
    """Return every pool that is configured or still has machines, by name, sorted."""
    names = {name for name, pool in fleet.pools.items() if isinstance(pool, Pool)}
    seen = Seen(fleet, world)
    return {
        name: _census_of(fleet, world, name, seen)
        for name in sorted(names | _vanished(fleet, seen))
    }


def _vanished(fleet: Fleet, seen: Seen) -> set[str]:
    """Return pools that fleet.yaml no longer has but the world does."""
    stacks = {} if isinstance(seen.owners.stacks, Unknown) else seen.owners.stacks
    with_stack = {
        name
        for name, stack in stacks.items()
        if isinstance(stack, Unknown) or stack.workers or stack.ids
    }
    known = with_stack | seen.pools()
    return {name for name in known if not isinstance(fleet.pools.get(name), Pool)}


def _census_of(fleet: Fleet, world: World, name: str, seen: Seen) -> PoolCensus:
    pool = fleet.pools.get(name)
    stack = _stack_of(seen, name)
    provider = pool.provider if isinstance(pool, Pool) else _provider_of(name, stack, seen)
    listing: Listing | Unknown = world.providers.get(provider, _NOT_READ)
    blind = list(_hidden(world, name, provider, seen))
    queues = sorted(q for q in world.queues if not isinstance(pool, Pool) or serves_queue(pool, q))
    if isinstance(listing, Unknown):
        return PoolCensus(
            pool=name,
            provider=provider,
            unseen=_unseen((name, world.time), stack, seen, queue_registries(world, queues)),
            uncounted=pool.workers.max
            if isinstance(pool, Pool) and isinstance(stack, Unknown)
            else 0,
            blind=tuple(blind),
            frozen=tuple(blind),
            listed=False,
        )
    blind += _strays(seen, name, provider)
    desks = desks_of(fleet, queues)
    registries, unreadable = _registries(world, queues, (provider, listing), desks, seen)
    return PoolCensus(
        pool=name,
        provider=provider,
        units=units_of(
            Sightings(name, seen.machines(provider, name), stack, seen.registered(registries)),
            is_overdue=lambda machine: is_overdue(pool, machine, world.time),
            now=world.time,
            has_registry=bool(registries) and not unreadable,
        ),
        blind=tuple(blind),
        frozen=(*blind, *unreadable, *stale_demand(fleet, world, queues)),
        sampled=tuple(q for q in queues if estimate_of(fleet, world, q)),
        stack=stack if isinstance(stack, Stack) else None,
        tokens=desks[0]
        if desks
        else provider
        if listing.workers is not None
        else revokes_at(fleet, queues),
        has_registry=bool(registries or unreadable),
        enrols=enrols_at(fleet, pool, queues) if listing.workers is None else None,
    )


def _registries(
    world: World,
    queues: list[str],
    listed: tuple[str, Listing],
    desks: tuple[str, ...],
    seen: Seen,
) -> tuple[Mapping[str, tuple[Worker, ...]], tuple[str, ...]]:
    """Return the workers by registry, and what could not be read; desks know all machines."""
    if not desks:
        return registries_of(world, queues, *listed)
    attended = seen.attended(desks, *listed)
    if isinstance(attended, Unknown):
        return {}, (attended.unknown,)
    others, unreadable = queue_registries(world, [q for q in queues if q not in desks])
    return {**attended, **others}, unreadable


def _hidden(world: World, name: str, provider: str, seen: Seen) -> Iterator[str]:
    """Yield what of a pool could not be read, or is contested."""
    listing = world.providers.get(provider, _NOT_READ)
    stack = _stack_of(seen, name)
    if isinstance(listing, Unknown):
        yield f"machines of provider {provider} are unknown: {listing.unknown}"
    if isinstance(world.stacks, Unknown):
        yield f"stacks are unknown: {world.stacks.unknown}"
    elif isinstance(stack, Unknown):
        yield f"the stack of pool {name} is unknown: {stack.unknown}"
    if name in seen.owners.contested:
        heir = seen.owners.contested[name]
        yield (
            f"pool {heir} says `previously: {name}`, but has a stack of its own; "
            f"remove that key, and pool {name} drains"
        )


def _stack_of(seen: Seen, name: str) -> Stack | Unknown | None:
    stacks = seen.owners.stacks
    return stacks if isinstance(stacks, Unknown) else stacks.get(name)


def _provider_of(name: str, stack: Stack | Unknown | None, seen: Seen) -> str:
    if isinstance(stack, Stack):
        return stack.provider
    return next(iter(seen.listers(name)), "")


def _strays(seen: Seen, name: str, provider: str) -> Iterator[str]:
    """Yield where else machines of a pool are listed: what it has is not known then."""
    for other in seen.listers(name):
        if other == provider:
            continue
        # Two providers of one account list the same machines.
        strays = [m for m in seen.machines(other, name) if not seen.lists(provider, m)]
        if strays:
            names = ", ".join(sorted(machine.name for machine in strays)[:3])
            yield (
                f"provider {other} lists machines of pool {name}, whose provider is "
                f"{provider or 'not known'} ({len(strays)}, as {names}); "
                "give the pool its old provider back, or a new name"
            )


def _unseen(
    pool_and_time: tuple[str, datetime],
    stack: Stack | Unknown | None,
    seen: Seen,
    registries: tuple[dict[str, tuple[Worker, ...]], tuple[str, ...]],
) -> tuple[Unit, ...]:
    """Return the machines that a pool's stack holds, as far as registries tell of them."""
    pool, now = pool_and_time
    readable, unreadable = registries
    known = seen.registered(readable)
    units = []
    for name in sorted(stack.ids) if isinstance(stack, Stack) else ():
        registry, worker = known.get(name, (None, None))
        has_registry = bool(readable) and not unreadable
        state = registered_state(worker, now, has_registry=has_registry, overdue=False)
        units.append(Unit(name, pool, state, worker=worker, registry=registry))
    return tuple(units)
