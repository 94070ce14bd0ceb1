"""This module gives free machines to tickets before a run decides what to make or to let go.

It is done under the fleet's lock, by one run at a time; what clients do meanwhile is seen by the
store, which gives nothing to a ticket that no longer waits.
"""

from collections.abc import Callable

from fleet.facts import Listing, World
from fleet.handout import hand_out
from fleet.operate.observe import Sources
from fleet.schema.model import Fleet
from fleet.tickets import Given


def hand_out_all(
    fleet: Fleet, world: World, sources: Sources, tell: Callable[[str], None]
) -> World:
    """Give out what is free, and return the world as it is then."""
    listings = [each for each in world.providers.values() if isinstance(each, Listing)]
    machines = {machine.name: machine for each in listings for machine in each.machines}
    is_whole = len(listings) == len(world.providers)
    for queue, desk in sorted(sources.desks.items()):
        desk.settle(world.time, frozenset(machines) if is_whole else None)
        tickets = desk.tickets()
        leases = hand_out(fleet, world, queue, tickets).leases
        given = [
            Given(
                ticket=lease.ticket,
                machine=lease.machine,
                pool=machines[lease.machine].pool,
                answer=machines[lease.machine].address or lease.machine,
            )
            for lease in leases
            if lease.machine in machines
        ]
        got = frozenset(desk.lease(given, world.time))
        for each in given:
            if each.ticket in got:
                tell(f"{each.pool}: {each.machine} is given to ticket {each.ticket}")
        world = world.model_copy(update={"queues": {**world.queues, queue: desk.read(world.time)}})
    return world
