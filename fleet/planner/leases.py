"""Choose the free machines that waiting tickets get before a run creates or deletes machines.

The order of the tickets and the limits are those of the plan (`turns`, `layout`). One pass in
linear time replaces the allocation, because machines are given out all the time.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.model.decisions import NoMachineReason
from fleet.model.facts import World
from fleet.planner.budgets import spending_limits
from fleet.planner.demand import EqualRequests
from fleet.planner.inventory import desks_of
from fleet.planner.layout import Layout, class_of, priority_at
from fleet.planner.limits import has_limits
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.turns import owners_in_turn
from fleet.planner.units import Unit, UnitState, is_up
from fleet.schema.model import Fleet, TicketQueue
from fleet.tagrules.vocabulary import Vocabulary

_UNKNOWN_PRICE = Decimal("Infinity")
"""Placeholder for an unknown price. It sorts after all known prices."""

FreeMachines = Mapping[str, Sequence[Unit]]
"""The free machines that tickets may get, by place, from the cheapest place to unknown prices."""


class Lease(NamedTuple):
    """A free machine that a waiting ticket gets."""

    ticket: str
    """The key of the ticket's request: `QUEUE/ID`."""
    signed: EqualRequests
    """The signature of the request."""
    machine: str
    lacking: frozenset[str]
    """The required tags that the machine lacks, because the ticket may waive them now."""


def find_free(
    fleet: Fleet,
    world: World,
    pool_plans: Mapping[str, PoolPlan],
    layout: Layout,
    withheld: Collection[str],
) -> FreeMachines:
    """Return the free machines that tickets may get, except for machines in `withheld`."""
    desks = desks_of(fleet, world.queues)
    found: dict[str, tuple[Decimal, list[Unit]]] = {}
    for key, place in layout.places.items():
        pool_plan = pool_plans.get(place.pool)
        if not place.units or pool_plan is None or pool_plan.inventory.blind:
            continue
        if pool_plan.pool is not None and pool_plan.pool.mode == "drain":
            continue
        units = [
            unit
            for unit in pool_plan.inventory.having(UnitState.IDLE)
            if unit.name in place.units and unit.name not in withheld
            if unit.worker is not None and unit.registry in desks
            if _is_usable(pool_plan, unit)
        ]
        prices = (pool_plan.cost_of(unit) for unit in units)
        price = max((_UNKNOWN_PRICE if p is None else p for p in prices), default=_UNKNOWN_PRICE)
        if units:
            found[key] = price, units
    cheap_first = sorted(found, key=lambda key: (found[key][0], key))
    return {key: found[key][1] for key in cheap_first}


def _is_usable(pool_plan: PoolPlan, unit: Unit) -> bool:
    """Return whether a machine responds; False for a machine that reboots or stops."""
    machine = unit.machine
    if machine is None:
        return True
    is_asked = pool_plan.pool is not None and pool_plan.pool.ready is not None
    answers = machine.misses == 0 if is_asked else not machine.misses
    return answers and is_up(pool_plan.fleet, pool_plan.name, machine)


def choose_leases(
    fleet: Fleet, world: World, layout: Layout, demand: Sequence[EqualRequests], free: FreeMachines
) -> Iterator[Lease]:
    """Yield the leases of free machines, in turn and within limits.

    A machine on demand for a tag goes first to the tickets that require the tag. The others get
    what those leave, but nothing that a request of another kind of queue needs.
    """
    desks = desks_of(fleet, sorted(world.queues))
    choices = _rank_places(fleet, demand, free)
    signature_of = {request.key: each for each in demand for request in each.requests}
    left, uses = [row.room for row in layout.rows], _find_uses(layout)
    units = {key: iter(each) for key, each in free.items()}
    numbers = {key: len(each) for key, each in free.items()}
    waiting = [key for desk in desks for key in owners_in_turn(fleet, world, desk, demand)]
    for is_last in (False, True):
        passed = []
        for ticket in waiting if any(numbers.values()) else ():
            signed, group = signature_of[ticket], layout.group_of[ticket].id
            choice = choices[signed.id]
            fitting = (
                place
                for place, others in choice.items()
                if numbers[place] and (not others or (is_last and others <= {*desks}))
                if all(amount <= left[row] for row, amount in uses.get((group, place), ()))
            )
            if (place := next(fitting, None)) is None:
                passed += [ticket] if any(choice.values()) else []
                continue
            for row, amount in uses.get((group, place), ()):
                left[row] -= amount
            numbers[place] -= 1
            yield Lease(ticket, signed, next(units[place]).name, signed.payer.lacks(place))
        waiting = passed


def _find_uses(layout: Layout) -> Mapping[tuple[str, str], Sequence[tuple[int, Decimal]]]:
    """Map (group, place) to the limits that count a request there: number, and amount."""
    found: defaultdict[tuple[str, str], list[tuple[int, Decimal]]] = defaultdict(list)
    for number, row in enumerate(layout.rows):
        # The plan reserves machines on demand by their number, but here by the order.
        for at in row.requests if row.code is not NoMachineReason.TAGGED_FIRST else ():
            found[at].append((number, row.requests[at]))
    return found


def _rank_places(
    fleet: Fleet, demand: Sequence[EqualRequests], free: FreeMachines
) -> dict[str, dict[str, set[str]]]:
    """Map each signature of tickets to the fitting places of free machines, the best first.

    A ticket that may waive a tag still gets a machine with the tag if one is free.
    Each place has the queues whose requests come first there, because it is on demand for them.
    """
    vocabulary = Vocabulary(fleet)
    is_low = {each.id: class_of(fleet, vocabulary, each.ask.required) > 0 for each in demand}
    takers: defaultdict[str, set[tuple[bool, str]]] = defaultdict(set)
    for signed in demand:
        for place in free.keys() & {*signed.fitting_supplies} - signed.reserved_supplies:
            takers[place].add((is_low[signed.id], signed.queue))
    # All machines of a place are in the same sandbox, or in none.
    kept = {place for place, (unit, *_) in free.items() if unit.worker and unit.worker.uses}
    found: dict[str, dict[str, set[str]]] = {}
    for signed in demand:
        desk, last = fleet.queues.get(signed.queue), signed.reserved_supplies
        if isinstance(desk, TicketQueue):
            fitting = {*signed.fitting_supplies}
            preference = {
                place: priority_at(fleet, free[place][0].pool, signed.ask.required)
                + desk.prefer_reuse * (place in kept)
                for place in free
                if place in fitting
            }
            lacking = {place: len(signed.payer.lacks(place)) for place in preference}
            best_first = sorted(
                preference, key=lambda p: (-preference[p], lacking[p], p not in kept, p in last)
            )
            found[signed.id] = {
                place: {queue for low, queue in takers[place] if is_low[signed.id] or not low}
                if place in last
                else set()
                for place in best_first
            }
    return found


def may_give_up(fleet: Fleet, pool_plans: Mapping[str, PoolPlan]) -> bool:
    """Return whether a plan may delete or keep a free machine because of earlier tickets.

    That is so if a full pool has a free machine that only one sandbox may use, or if a free
    machine may go past tickets at a limit to a later ticket.
    """
    is_limited = has_limits(fleet) or bool(spending_limits(fleet))
    return any(
        is_limited
        or (
            pool_plan.pool is not None
            and pool_plan.pool.reuse is not None
            and len(pool_plan.inventory.units) >= pool_plan.size.max
            and any(unit.worker and unit.worker.uses for unit in idle)
        )
        for pool_plan in pool_plans.values()
        if (idle := pool_plan.inventory.having(UnitState.IDLE))
    )
