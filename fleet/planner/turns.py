"""Order tickets so that owners take turns, and release machines for owners whose turn it is.

The score of a ticket is 100 per priority level plus 1 per `ageing` step of waiting. It is reduced
by 1 per machine that its owner has, or had while all current owners were waiting, and by 1 per
earlier ticket of its owner. Machines from before then only cancel waiting steps from before then.

A machine kept for later tickets of a sandbox is deleted if an earlier ticket waits only for
capacity of the pool, or for limits and budgets that those later tickets use. At limits and
budgets, a ticket goes before later tickets of other owners.

Free machines go to waiting tickets before a run creates or deletes machines, by the same order and
limits. One pass in linear time replaces the allocation, because machines are given out all the
time.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from math import inf
from typing import NamedTuple

from fleet.model.decisions import NoMachineReason
from fleet.model.facts import Demand, World
from fleet.model.plan import Create, Delete, Reason
from fleet.model.pool_limits import boot_of
from fleet.planner.allocation import Allocation
from fleet.planner.assignment import Stop
from fleet.planner.budgets import spending_limits
from fleet.planner.demand import Constraints, EqualRequests, LimitRow, Rank
from fleet.planner.inventory import desks_of, find_freeze
from fleet.planner.layout import Layout, class_of, priority_at
from fleet.planner.limits import has_limits
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.staffing import Service, is_blocked_by_max
from fleet.planner.units import Unit, UnitState, is_busy, is_up
from fleet.schema.model import Fleet, TicketQueue
from fleet.tagrules.vocabulary import Vocabulary

PRIORITY = 100
"""Score of one priority level."""
CLASS = 10**9
"""A number above the score of any ticket."""

_MAX_RANKS = 8
"""Maximum number of ranks for overtaken tickets at one limit; each rank takes solver time."""


class WaitingTicket(NamedTuple):
    """A waiting ticket, before owners take turns."""

    id: int
    owner: str
    priority: int
    since: datetime
    tag_class: int = 0
    """The priority class of its tags; lower classes come first."""

    @property
    def rank(self) -> int:
        """Return the score of its priority and of the priority class of its tags."""
        return self.priority * PRIORITY - self.tag_class * CLASS


def _age_steps(now: datetime, since: datetime, ageing: int) -> int:
    """Return the number of complete `ageing` steps of a wait."""
    return int((now - since).total_seconds()) // ageing


def in_turn(
    waiting: Iterable[WaitingTicket],
    held: Iterable[str],
    ageing: int,
    now: datetime,
    behind: Mapping[int, int],
) -> list[int]:
    """Return ticket ids in service order. `held` has the owner of each machine in use."""
    turns = Counter(held)
    oldest_first = sorted(waiting, key=lambda t: (-t.rank, t.since, t.id))
    score: dict[int, int] = {}
    alike: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for ticket in oldest_first:
        waited = _age_steps(now, ticket.since, ageing)
        score[ticket.id] = ticket.rank - turns[ticket.owner] + waited
        score[ticket.id] -= behind.get(ticket.id, 0)
        turns[ticket.owner] += 1
        if behind:
            alike[ticket.owner, ticket.rank].append(ticket.id)
    for ids in alike.values():
        # The oldest ticket of an owner gets the owner's best score, so that it is served first.
        best_first = sorted((score[number] for number in ids), reverse=True)
        score |= dict(zip(ids, best_first, strict=True))
    return [t.id for t in sorted(oldest_first, key=lambda t: (-score[t.id], t.since, t.id))]


class Had(NamedTuple):
    """A machine that an owner of a ticket had and returned."""

    owner: str
    priority: int
    ended_at: datetime


def places_behind(
    waiting: Iterable[tuple[int, str, int, datetime]],
    ended: Iterable[Had],
    ageing: int,
    now: datetime,
) -> dict[int, int]:
    """Map each ticket id to the points it loses for machines that its owner had while waiting.

    `waiting` has id, owner, priority and opening time. Machines from before the last owner arrived
    deduct at most the age steps that the ticket gained before then. Empty for a single owner.
    """
    waiting = [*waiting]
    oldest: dict[str, datetime] = {}
    for _, owner, _, since in waiting:
        oldest[owner] = min(since, oldest.get(owner, since))
    if len(oldest) < 2:  # noqa: PLR2004 - one owner alone takes no turns
        return {}
    together = max(oldest.values())
    ends: defaultdict[tuple[str, int], list[datetime]] = defaultdict(list)
    priorities = {(owner, priority) for _, owner, priority, _ in waiting}
    for had in ended:
        for owner, priority in priorities:
            if owner == had.owner and had.priority <= priority:
                ends[owner, priority].append(had.ended_at)
    for each in ends.values():
        each.sort()
    behind = {}
    for number, owner, priority, since in waiting:
        own = ends[owner, priority]
        begin = max(together, since)
        later = len(own) - bisect_left(own, begin)
        before = bisect_left(own, begin) - bisect_left(own, since)
        # After `begin`, all owners gain equal steps, so only earlier steps limit the deduction.
        waited = _age_steps(now, since, ageing) - _age_steps(now, begin, ageing)
        if places := later + min(before, waited):
            behind[number] = places
    return behind


@dataclass(frozen=True)
class Chosen:
    """The allocation problem of a run, and its solution."""

    layout: Layout
    allocation: Allocation

    @cached_property
    def left(self) -> Mapping[LimitRow, Decimal]:
        """Return the slack of each limit after the allocation."""
        rows = self.layout.rows
        left = Constraints(rows).left(self.allocation.machines, self.allocation.counts)
        return dict(zip(rows, left, strict=True))

    def needed(self, key: str, place: str, row: LimitRow) -> Decimal:
        """Return the amount of a limit that a request needs on a new machine at a place."""
        amount = row.requests.get((self.layout.group_of[key].id, place), Decimal(0))
        return amount + row.machines.get(place, Decimal(0))

    def frees(self, pool: str, key: str, other: str, stops: Iterable[Stop]) -> bool:
        """Return True if `other` can be served once the machine kept for request `key` is deleted.

        Deleting the machine always frees capacity of its pool.
        """
        group, places = self.layout.group_of[key], self.layout.places
        own = [at for at in group.fits if places[at].pool == pool and not places[at].makes]

        def is_free(row: LimitRow, place: str) -> bool:
            freed = min((row.requests.get((group.id, at), Decimal(0)) for at in own), default=0)
            return _is_pool_limit(row) or self.left[row] + freed >= self.needed(other, place, row)

        return any(all(is_free(row, stop.place) for row in stop.rows) for stop in stops)


def give_up_for_others(
    fleet: Fleet,
    world: World,
    pool_plans: Mapping[str, PoolPlan],
    chosen: Chosen,
    service: Service,
) -> frozenset[str]:
    """Delete machines kept for later tickets if earlier tickets wait for this capacity.

    Return the names of these machines. The later tickets then wait for the same capacity. The
    first ticket by turn decides first: it gets the machine of the last ticket after it, in the
    first pool by name. Machines outside of sandboxes come before deletions.
    """
    given_up: set[str] = set()
    plans = {n: each for n, each in sorted(pool_plans.items()) if _can_give_up(world, each)}
    if not any(_tickets_by_machine(each, in_sandbox=True) for each in plans.values()):
        return frozenset()
    full = {name: _waiting_for_room(each, chosen, service) for name, each in plans.items()}
    waiting = {key for keys in full.values() for key in keys}
    for queue in sorted({key.partition("/")[0] for key in waiting}):
        in_order = owners_in_turn(fleet, world, queue, service.demand)
        turns = {key: place for place, key in enumerate(in_order)}
        room = {name: sorted(_capacity_turns(each, turns)) for name, each in plans.items()}
        in_use = {n: _tickets_by_machine(each, in_sandbox=True) for n, each in plans.items()}
        for key in sorted(waiting & turns.keys(), key=turns.__getitem__):
            turn, pools = turns[key], [name for name, keys in full.items() if key in keys]
            free = next((name for name in pools if room[name] and room[name][-1] > turn), None)
            if free is not None:
                room[free].pop()
                continue
            for name in pools:
                later = {
                    unit: turns[other]
                    for unit, other in in_use[name].items()
                    if turns.get(other, -1) > turn
                    if chosen.frees(name, other, key, full[name][key])
                }
                if later:
                    unit = max(later, key=lambda each: (later[each], each))
                    del in_use[name][unit]
                    _delete_for_ticket(plans[name], unit, key, service)
                    given_up.add(unit)
                    break
    return frozenset(given_up)


def find_overtaken(
    fleet: Fleet, world: World, demand: Sequence[EqualRequests], layout: Layout, by_age: Allocation
) -> dict[str, Rank]:
    """Return ranks for tickets that a limit blocks while it admits later tickets of other owners.

    `by_age` is the allocation by priority, age and cost. If a limit admits N tickets of a queue,
    it admits the first N tickets by turn if their machines can be created.
    """
    stopped = _stopped_at(fleet, by_age)
    if not stopped:
        return {}
    group_of = layout.group_of
    served = {
        each.key: (group_of[each.key].id, place)
        for place, served_there in by_age.served.items()
        for _, each in served_there
    }
    found: dict[str, Rank] = {}
    for queue in sorted({key.partition("/")[0] for keys in stopped.values() for key in keys}):
        owners = owners_in_turn(fleet, world, queue, demand)
        if len({*owners.values()}) < 2:  # noqa: PLR2004 - one owner alone takes no turns
            continue
        for row, waiting in stopped.items():
            counted = {
                key
                for key in owners.keys() & served.keys()
                if row.requests.get(served[key]) or row.machines.get(served[key][1])
            }
            in_turn_here = [key for key in owners if key in waiting or key in counted]
            due, others = in_turn_here[: len(counted)], in_turn_here[len(counted) :]
            passed = {owners[key] for key in due if key in waiting}
            overtaking = {owners[key] for key in others if key in counted}
            if len(passed | overtaking) < 2:  # noqa: PLR2004 - an owner does not overtake itself
                continue
            best = min(group_of[key].rank for key in others)
            steps = min(_MAX_RANKS, len(due))
            for nth, key in enumerate(due):
                ahead = steps - nth * steps // len(due)
                rank = min(group_of[key].rank, (*best[:2], best[2] - ahead))
                found[key] = min(rank, found.get(key, rank))
    return found


def _is_pool_limit(row: LimitRow) -> bool:
    """Return True if a constraint comes from a key under `workers` of a pool."""
    return row.path[2:3] == ("workers",)


def _stopped_at(fleet: Fleet, by_age: Allocation) -> dict[LimitRow, set[str]]:
    """Map each limit to the tickets it blocks; omit limits that running work exhausts."""
    stopped: defaultdict[LimitRow, set[str]] = defaultdict(set)
    desks = {name for name, queue in fleet.queues.items() if isinstance(queue, TicketQueue)}
    for key, stops in by_age.unserved.items():
        for stop in stops if key.partition("/")[0] in desks else ():
            # If running work exhausts a limit, no order of tickets frees capacity.
            if all(row.room > 0 for row in stop.rows):
                for row in stop.rows:
                    if not _is_pool_limit(row):
                        stopped[row].add(key)
    return stopped


def keep_for_turns(
    pool_plans: Mapping[str, PoolPlan],
    chosen: Chosen,
    overtaken: Mapping[str, Rank],
    by_age: Allocation,
    service: Service,
) -> frozenset[str]:
    """Return idle machines to keep for later tickets while machines for earlier tickets boot.

    `by_age` is the allocation without turns; `overtaken` has new ranks of overtaken tickets.
    If assigned now, later tickets would use the limit that the earlier tickets need. After the
    expected boot time no machine is kept: the pool or a guard may refuse to create the machines.
    """
    places, by_turn = chosen.layout.places, chosen.allocation.served
    helped = overtaken.keys() & by_age.unserved.keys()
    waits = [
        boot_of(pool).expected + 3 * pool_plan.fleet.cadence
        for at, requests in by_turn.items()
        if (pool_plan := pool_plans.get(places[at].pool)) and (pool := pool_plan.pool)
        if pool.mode == "apply" and any(each.key in helped for _, each in requests)
    ]
    pools = {
        places[at].pool
        for at, requests in by_age.served.items()
        if not places[at].makes and len(requests) > len(by_turn.get(at, ()))
    }
    used = {*service.by_worker.values()}
    return frozenset(
        unit.name
        for name in pools & pool_plans.keys()
        for unit in pool_plans[name].inventory.having(UnitState.IDLE)
        if unit.name not in used and unit.since is not None
        if (pool_plans[name].world.time - unit.since).total_seconds() <= max(waits, default=-1)
    )


def _can_give_up(world: World, pool_plan: PoolPlan) -> bool:
    """Return True if `reuse` keeps machines in a pool and this run may delete machines there.

    In other pools, no ticket would get the machine, but the machine would still be kept.
    """
    pool = pool_plan.pool
    if pool is None or pool.reuse is None or pool.mode != "apply" or not pool_plan.may_remove:
        return False
    return find_freeze(pool_plan.fleet, world, pool_plan.name, "deletes") is None


def _tickets_by_machine(pool_plan: PoolPlan, *, in_sandbox: bool) -> dict[str, str]:
    """Map idle and booting machines in a sandbox, or outside one, to their assigned ticket."""
    return {
        unit.name: pool_plan.used[unit.name]
        for unit in pool_plan.inventory.units
        if unit.name in pool_plan.used
        and unit.state is not UnitState.BUSY
        and in_sandbox
        == (unit.state is UnitState.IDLE and unit.worker is not None and bool(unit.worker.uses))
    }


def _capacity_turns(pool_plan: PoolPlan, turns: Mapping[str, int]) -> Iterator[float]:
    """Yield the turn of each machine's ticket outside of sandboxes, and infinity per deletion.

    These machines are assigned by turn, although a plan may count them for other tickets.
    """
    counted = [*_tickets_by_machine(pool_plan, in_sandbox=False).values()]
    for action in pool_plan.actions:
        if isinstance(action, Create):
            counted += action.serves[:1]
        elif isinstance(action, Delete):
            yield inf
    yield from (turns[key] for key in counted if key in turns)


def _waiting_for_room(
    pool_plan: PoolPlan, chosen: Chosen, service: Service
) -> dict[str, tuple[Stop, ...]]:
    """Return the blocked places per request that only the capacity of a pool blocks.

    Limits that other requests of this plan exhaust may also block the request.
    """

    def is_short(key: str, stop: Stop) -> bool:
        place = stop.place
        # Only other requests of this plan exhaust the other limits.
        others = tuple(
            row
            for row in stop.rows
            if _is_pool_limit(row) or chosen.needed(key, place, row) > row.room
        )
        is_here = chosen.layout.places[place].pool == pool_plan.name
        return is_here and is_blocked_by_max(Stop(place, others), pool_plan.name)

    short = (
        (key, tuple(stop for stop in stops if is_short(key, stop)))
        for key, stops in service.unserved.items()
    )
    return {key: stops for key, stops in short if stops}


def owners_in_turn(
    fleet: Fleet, world: World, queue: str, demand: Sequence[EqualRequests]
) -> dict[str, str]:
    """Map each waiting ticket to its owner, in the order of service; empty without tickets."""
    desk, reading = fleet.queues.get(queue), world.queues[queue]
    if not isinstance(desk, TicketQueue) or not isinstance(reading.demand, Demand):
        return {}
    vocabulary = Vocabulary(fleet)
    known = {f"{queue}/{each.id}": each for each in reading.demand.requests}
    waiting = []
    for signed in (each for each in demand if each.queue == queue):
        tag_class = class_of(fleet, vocabulary, signed.ask.required)
        for request in filter(None, (known.get(each.key) for each in signed.requests)):
            if request.id.isdecimal():
                since = request.pending_since or world.time
                own = int(request.id), request.owner or "", request.priority
                waiting.append(WaitingTicket(*own, since, tag_class))
    workers = reading.workers if isinstance(reading.workers, tuple) else ()
    held = [worker.work.owner or "" for worker in workers if is_busy(worker) and worker.work]
    behind = {int(number): n for number, n in reading.behind.items() if number.isdecimal()}
    ids = in_turn(waiting, held, desk.ageing, world.time, behind)
    owner_of = {each.id: each.owner for each in waiting}
    return {f"{queue}/{number}": owner_of[number] for number in ids}


def _delete_for_ticket(pool_plan: PoolPlan, name: str, key: str, service: Service) -> None:
    """Delete a machine to give its capacity to a ticket. Tickets assigned to the machine wait."""
    stops = service.unserved[key]
    counted = {each for each, unit in service.by_worker.items() if unit == name}
    service.by_worker = {k: u for k, u in service.by_worker.items() if k not in counted}
    service.unserved = {**service.unserved, **dict.fromkeys(counted, stops)}
    pool_plan.served -= len(counted)
    del pool_plan.used[name]
    unit = next(each for each in pool_plan.inventory.units if each.name == name)
    pool_plan.delete(
        unit,
        Reason.TICKET_RETURNED,
        f"its ticket ended, and request {key} comes before the next of its sandbox and waits for "
        "its room: owners take turns",
    )


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
    return {key: found[key][1] for key in sorted(found, key=lambda key: (found[key][0], key))}


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
    left = [row.room for row in layout.rows]
    uses: defaultdict[tuple[str, str], list[tuple[int, Decimal]]] = defaultdict(list)
    for number, limit in enumerate(layout.rows):
        # The plan reserves machines on demand by their number, but here by the order.
        for at in limit.requests if limit.code is not NoMachineReason.TAGGED_FIRST else ():
            uses[at].append((number, limit.requests[at]))
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
