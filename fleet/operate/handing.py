"""This module gives free machines to tickets before a run decides what to make or to let go.

It is done under the fleet's lock, by one run at a time; what clients do meanwhile is seen by the
store, which gives nothing to a ticket that no longer waits.
"""

from collections.abc import Callable, Collection

from fleet.bystanders import known_machines
from fleet.facts import Listing, QueueReading, Unknown, World
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
    # A listing may omit a machine once: one that a stack records is not forgotten for that.
    known = known_machines(world)
    there = None if known is None else frozenset(known)
    for queue, desk in sorted(sources.desks.items()):
        tickets = desk.settle(world.time, there)
        leases = hand_out(fleet, world, queue, tickets).leases
        given = [
            Given(
                ticket=lease.ticket,
                machine=lease.machine,
                pool=machines[lease.machine].pool,
                answer=machines[lease.machine].address or lease.machine,
                created_at=machines[lease.machine].created_at,
            )
            for lease in leases
            if lease.machine in machines
        ]
        leased = desk.lease(given, world.time)
        got = frozenset(leased.tickets)
        for each in given:
            if each.ticket in got:
                tell(f"{each.pool}: {each.machine} is given to ticket {each.ticket}")
            elif each.ticket in leased.refused:
                because = leased.refused[each.ticket]
                tell(f"{each.pool}: ticket {each.ticket} waits on, as {because}")
        if got:
            reading = _without(world.queues[queue], {str(number) for number in got})
            reading = reading.model_copy(update={"workers": desk.workers(world.time)})
            world = world.model_copy(update={"queues": {**world.queues, queue: reading}})
    return world


def _without(reading: QueueReading, ids: Collection[str]) -> QueueReading:
    """Return what still waits."""
    if isinstance(reading.demand, Unknown):
        return reading
    left = tuple(each for each in reading.demand.requests if each.id not in ids)
    return reading.model_copy(
        update={"demand": reading.demand.model_copy(update={"requests": left})}
    )
