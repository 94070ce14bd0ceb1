"""This module says until when each machine is vouched for, and which ones nobody vouches for.

Each run of `fleet apply` notes at the provider, never in what a machine is made from, until when
it vouches. A machine that no stack knows is vouched for by nobody. Where its provider can note
nothing, the journal of runs is the only witness.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from fleet.facts import Listing, Machine, Stack, Unknown, World
from fleet.schema.model import Fleet

_SLACK = 4
"""A part of `expire_after` that is added, so that not every run has to note something."""


def find_due(fleet: Fleet, world: World) -> Iterator[tuple[str, tuple[Machine, ...]]]:
    """Yield by provider the machines whose expiry this run has to extend."""
    enough = world.time + timedelta(seconds=fleet.expire_after)
    known = _recorded(world)
    for name, listing in sorted(world.providers.items()):
        if isinstance(listing, Listing) and listing.notes_expiry:
            due = tuple(
                machine
                for machine in listing.machines
                if (machine.expires is None or machine.expires < enough)
                and (known is None or {machine.id, machine.name} & known)
            )
            if due:
                yield name, due


def extended(fleet: Fleet, now: datetime) -> datetime:
    """Return until when a run of this moment vouches for a machine: never less than it says."""
    return now + timedelta(seconds=fleet.expire_after + fleet.expire_after // _SLACK)


def expired_at(fleet: Fleet, world: World, provider: str, machine: Machine) -> datetime | None:
    """Return when the last run that vouched for a machine ceased to; None: it does, or may."""
    end = machine.expires or _end_by_journal(fleet, world, provider, machine)
    return end if end is not None and end < world.time else None


def _end_by_journal(
    fleet: Fleet, world: World, provider: str, machine: Machine
) -> datetime | None:
    """Return how long a machine without a note is vouched for: by its making and every run."""
    if not isinstance(world.runs, Unknown):
        return extended(fleet, max([machine.created_at, *world.runs]))
    listing = world.providers.get(provider)
    noted = isinstance(listing, Listing) and listing.notes_expiry
    # A run that lives would have noted it there by now.
    return extended(fleet, machine.created_at) if noted else None


def _recorded(world: World) -> set[str] | None:
    """Return ids and names of what stacks hold or are about to; None where one is not known."""
    stacks = [] if isinstance(world.stacks, Unknown) else [*world.stacks.values()]
    if isinstance(world.stacks, Unknown) or any(isinstance(each, Unknown) for each in stacks):
        return None
    known: set[str] = set()
    for stack in stacks:
        if isinstance(stack, Stack):
            known |= {each.name for each in stack.workers} - stack.ids.keys()
            known |= set(stack.ids.values())
    return known
