"""This module says whose a stack and a machine are when a pool was renamed.

`previously: old` hands the machines and the stack of `old` over to the pool that says so. Names
and labels of what exists stay; the store then remembers whose the stack is, and what was spent and
tried under the old name, so that the key may be dropped after an apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.model.facts import Attempt, Charge, Machine, Stack, Unknown, World
from fleet.schema.model import Fleet, Pool


def heirs_of(fleet: Fleet) -> dict[str, str]:
    """Return the old name of each renamed pool and what it is called now."""
    heirs: dict[str, str] = {}
    for name, pool in sorted(fleet.pools.items()):
        old = pool.previously if isinstance(pool, Pool) else None
        if old is not None and old not in fleet.pools:
            heirs.setdefault(old, name)
    return heirs


def takers_of(fleet: Fleet, world: World) -> dict[str, str]:
    """Return what each renamed pool is called now, without those whose heirs took over nothing.

    A pool that has a stack of its own cannot take over another.
    """
    stacks = {} if isinstance(world.stacks, Unknown) else world.stacks
    return {old: new for old, new in heirs_of(fleet).items() if not {old, new} <= stacks.keys()}


def charges_of(fleet: Fleet, world: World) -> tuple[Charge, ...]:
    """Return what was charged, by the pools' names of today; nothing where it is unknown."""
    if isinstance(world.ledger, Unknown):
        return ()
    takers = takers_of(fleet, world)
    return tuple(
        charge.model_copy(update={"pool": takers[charge.pool]})
        if charge.pool in takers
        else charge
        for charge in world.ledger.charges
    )


def attempts_of(fleet: Fleet, world: World) -> tuple[Attempt, ...]:
    """Return the tries that are remembered, by the pools' names of today."""
    takers = takers_of(fleet, world)
    return tuple(
        each.model_copy(update={"pool": takers[each.pool]}) if each.pool in takers else each
        for each in world.attempts
    )


def stack_name(fleet: Fleet, pool: str, stack: Stack | None = None) -> str:
    """Return the name of a pool's stack; a renamed pool keeps the one it has."""
    return (stack.name if stack else "") or f"{fleet.fleet}-{pool}"


@dataclass(frozen=True)
class Owners:
    """Whose each stack and machine of a world is."""

    stacks: Mapping[str, Stack | Unknown] | Unknown
    """Pool to its stack, by the names of today."""
    heirs: Mapping[str, str]
    """Old name to the pool that takes over."""
    contested: Mapping[str, str]
    """Old name to a pool that says it was called so, but has a stack of its own."""
    held: Mapping[tuple[str, str], str]
    """Name and id of each recorded machine to the pool whose stack holds it."""

    def owner_of(self, machine: Machine) -> str:
        """Return whose a machine is: by the stack that holds it, else by its label."""
        label = self.heirs.get(machine.pool, machine.pool)
        return self.held.get((machine.name, machine.id), label)


def find_owners(fleet: Fleet, world: World) -> Owners:
    """Return whose everything is in a world that may have been observed under old names."""
    heirs = heirs_of(fleet)
    if isinstance(world.stacks, Unknown):
        return Owners(world.stacks, heirs, {}, {})
    taken = takers_of(fleet, world)
    contested = {old: new for old, new in heirs.items() if old not in taken}
    stacks = {taken.get(pool, pool): stack for pool, stack in world.stacks.items()}
    held = {
        (name, machine_id): pool
        for pool, stack in sorted(stacks.items())
        if isinstance(stack, Stack)
        for name, machine_id in stack.ids.items()
    }
    return Owners(stacks, taken, contested, held)
