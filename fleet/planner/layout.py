"""Build the allocation problem: request groups, places to run, limits as linear constraints."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import accumulate
from math import gcd

from fleet.model.facts import World
from fleet.model.pool_limits import boot_of
from fleet.model.prices import Tariff, bill
from fleet.planner.begin import PoolPlans
from fleet.planner.budgets import BudgetAccount, open_accounts, spending_limits
from fleet.planner.costs import Way, new_place
from fleet.planner.demand import (
    EqualRequests,
    Fit,
    LimitRow,
    Ordered,
    Payer,
    Place,
    Rank,
    RequestGroup,
    Supply,
    teams_of,
)
from fleet.planner.durations import USUAL, Durations, MachineKind, Timing, kind_of
from fleet.planner.limits import (
    Use,
    blocked_rows,
    find_uses,
    last_rows,
    limited_tags,
    pool_rows,
    tag_rows,
)
from fleet.planner.pool_plan import PoolPlan
from fleet.planner.units import Unit, UnitState
from fleet.schema.model import Fleet, Pool, TicketQueue
from fleet.tagrules.vocabulary import Vocabulary

_AGE_STEP = timedelta(minutes=10)
"""Smallest step of waiting time. Steps double; requests within one step count as equally old."""
_MAX_LENGTHS = 64
"""Maximum number of exact durations. Above it, budgets round up, and bills use the average."""
_CLASSES = {"high": -1, "normal": 0, "low": 1}


@dataclass(frozen=True)
class Layout:
    """The allocation problem of one run: request groups, places, limits and budgets."""

    groups: tuple[RequestGroup, ...]
    places: Mapping[str, Place]
    rows: tuple[LimitRow, ...]
    accounts: tuple[BudgetAccount, ...]
    uses: tuple[Use, ...]
    """The usage of each limit on tags and queues."""

    @cached_property
    def group_of(self) -> Mapping[str, RequestGroup]:
        """Map the key of each waiting request to its group."""
        return {each.key: group for group in self.groups for each in group.requests}


def lay_out(
    fleet: Fleet,
    world: World,
    pool_plans: PoolPlans,
    supplies: Mapping[str, Supply],
    demand: Sequence[EqualRequests],
) -> Layout:
    """Build the allocation problem of this run from the waiting requests."""
    places = {place.key: place for place in _places(fleet, world, pool_plans, supplies)}
    groups = tuple(_groups(fleet, world, places, demand))
    accounts = open_accounts(pool_plans.books, groups, places.values())
    uses = tuple(find_uses(fleet, pool_plans, groups, teams_of(fleet, world)))
    rows = (
        *pool_rows(pool_plans, places.values()),
        *tag_rows(uses),
        *blocked_rows(fleet, groups),
        *last_rows(fleet, supplies, groups, places),
        *(account.row for account in accounts),
    )
    return Layout(groups, places, rows, accounts, uses)


def _places(
    fleet: Fleet, world: World, pool_plans: Mapping[str, PoolPlan], supplies: Mapping[str, Supply]
) -> Iterator[Place]:
    durations = Durations(fleet, world)
    for key, supply in supplies.items():
        if supply.units:
            pool_plan = pool_plans.get(supply.pool)
            inventory = pool_plan.inventory if pool_plan else None
            units = {u.name: u for u in (*inventory.units, *inventory.unseen)} if inventory else {}
            own = [units.get(name) for name in supply.units]
            parts = (
                _remaining_share(fleet, durations, world.time, pool_plan, unit) for unit in own
            )
            kinds = tuple(sorted({kind_of(fleet, supply.pool, unit) for unit in own if unit}))
            room, names = sum(parts), frozenset(supply.units)
            yield Place(key, supply.pool, makes=False, room=room, kinds=kinds, units=names)
    for pool_plan in pool_plans.values():
        for option in pool_plan.options if not pool_plan.closed else ():
            if not option.closed:
                name, on_demand = pool_plan.name, pool_plan.on_demand
                way = Way(name, option.type, option.market)
                yield new_place(fleet, world, way, on_demand=on_demand)


def _remaining_share(
    fleet: Fleet,
    durations: Durations,
    now: datetime,
    pool_plan: PoolPlan | None,
    unit: Unit | None,
) -> float:
    """Return the share of `target_wait`, from 0 to 1, that a worker has for new requests.

    A busy worker first finishes its current work. Its share is 0 if the work's end is unknown.
    """
    if pool_plan is None or unit is None or unit.state is not UnitState.BUSY:
        return 1.0
    wait = pool_plan.pool.target_wait if pool_plan.pool else None
    kind = kind_of(fleet, pool_plan.name, unit)
    left = durations.remaining(unit.worker, now, kind) if unit.worker else None
    return max(0.0, 1 - left / wait) if wait and left is not None else 0.0


_Preferred = tuple[bool, tuple[tuple[str, int], ...]]
"""True if pool priorities rank before cost, and the nonzero priority of each pool."""
_Key = tuple[Rank, int, Payer, frozenset[str], int, Timing | None, frozenset[str], _Preferred]


def _groups(
    fleet: Fleet,
    world: World,
    places: Mapping[str, Place],
    demand: Sequence[EqualRequests],
) -> Iterator[RequestGroup]:
    """Yield groups of requests that share rank, payer, eligible places and limits."""
    vocabulary = Vocabulary(fleet)
    limited = limited_tags(fleet, vocabulary)
    ways: defaultdict[str, list[str]] = defaultdict(list)
    for place in places.values():
        if place.makes:
            ways[place.pool].append(place.key)
    pools = fleet.dynamic_pools
    waits = {
        place.key: (pool.target_wait, boot_of(pool).expected)
        if (pool := pools.get(place.pool)) and pool.target_wait is not None
        else (0, 0)
        for place in places.values()
    }
    # A budget counts the longest request of a group, so a group has requests of similar duration.
    lengths = _lengths(demand) if spending_limits(fleet) else {}
    together: defaultdict[_Key, list[Ordered]] = defaultdict(list)
    known: dict[tuple[tuple[str, ...], ...], tuple[int, tuple[str, ...]]] = {}
    choices: dict[tuple[str, ...], int] = {}  # numbered because these tuples are slow to hash
    for signed in demand:
        tags = limited(signed.ask.required)
        fitting = signed.fitting_supplies, signed.creating_pools
        if fitting not in known:
            workers = [key for key in signed.fitting_supplies if key in places]
            keys = (*workers, *(way for pool in signed.creating_pools for way in ways[pool]))
            known[fitting] = choices.setdefault(keys, len(choices)), keys
        able, keys = known[fitting]
        ranked = class_of(fleet, vocabulary, signed.ask.required), -signed.priority
        timing = signed.timing
        deadline = timing and timing.deadline
        own: defaultdict[tuple[Rank, int | None, int], list[Ordered]] = defaultdict(list)
        for request in signed.requests:
            since, seconds = request.since, request.seconds
            steps = max(0, (world.time - since) // _AGE_STEP).bit_length() if since else 0
            rank = signed.turns.get(request.key) or (*ranked, -steps)
            length = lengths[seconds or 0] if lengths else 0
            own[rank, seconds if deadline else None, length].append(request)
        identity = timing if timing and timing.identity else None
        alone = identity, signed.reserved_supplies, _pool_priorities(fleet, signed)
        for (rank, seconds, length), requests in own.items():
            if deadline and timing:
                in_time = (k for k in keys if not timing.is_late(places[k].kinds, seconds))
                able = choices.setdefault(tuple(in_time), len(choices))
            together[rank, able, signed.payer, tags, length, *alone] += requests
    at = [tuple(places[key] for key in keys) for keys in choices]
    fits = _Fits(waits, world.time, lengths)
    for (rank, able, payer, tags, _, _, last, preferred), requests in together.items():
        requests.sort()
        of_places, varied = fits.of(requests, at[able], dict(preferred[1]))
        yield RequestGroup(
            id=requests[0].key,
            rank=rank,
            requests=tuple(requests),
            fits=of_places,
            payer=payer,
            last=last,
            tags=tags,
            by_priority=preferred[0],
            varied=varied,
            coarse=varied and len({request.seconds for request in requests}) > _MAX_LENGTHS,
        )


def _pool_priorities(fleet: Fleet, signed: EqualRequests) -> _Preferred:
    """Return a pair: True if priorities rank before cost; the nonzero priority of each pool."""
    queue = fleet.queues.get(signed.queue)
    if not isinstance(queue, TicketQueue):
        return False, ()
    found = {name: priority_at(fleet, name, signed.ask.required) for name in signed.creating_pools}
    return queue.prefer == "priority", tuple((name, n) for name, n in found.items() if n)


def priority_at(fleet: Fleet, pool: str, required: Iterable[str]) -> int:
    """Return the sum of a pool's priorities for these required tags; 0 without priorities."""
    own = fleet.pools.get(pool)
    if not isinstance(own, Pool) or not own.priorities:
        return 0
    return sum(own.priorities.get(tag, 0) for tag in required)


def _lengths(demand: Sequence[EqualRequests]) -> dict[int, int]:
    """Map each expected duration to the duration that budgets count, in seconds.

    Durations are rounded up if more than `_MAX_LENGTHS` durations exist.
    """
    found = {request.seconds or 0 for signed in demand for request in signed.requests}
    return {each: _rounded_up(each) if len(found) > _MAX_LENGTHS else each for each in found}


def _rounded_up(seconds: int) -> int:
    """Round up to the next of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    power = 1 << max(0, seconds - 1).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= seconds else power


_Wait = tuple[int, int]
"""A pool's `target_wait` and its expected boot time, in seconds."""


def class_of(fleet: Fleet, vocabulary: Vocabulary, required: Iterable[str]) -> int:
    """Return the priority class of required tags: -1 high, 0 normal, 1 low. Low overrides high."""
    classes = {
        _CLASSES[fleet.tags[name].priority]
        for tag in required
        for name in vocabulary.names_of(tag)
        if "priority" in fleet.tags[name].model_fields_set
    }
    return 1 if 1 in classes else min(classes, default=0)


class _Fits:
    """Finder of the average usage of each place per request of a group."""

    def __init__(
        self, waits: Mapping[str, _Wait], now: datetime, lengths: Mapping[int, int]
    ) -> None:
        self._waits = waits
        self._now = now
        self._lengths = lengths
        self._known: defaultdict[object, _Known] = defaultdict(dict)
        """Cached fits per load: groups with equal durations have equal usage."""

    def of(
        self, requests: Sequence[Ordered], places: Iterable[Place], priorities: Mapping[str, int]
    ) -> tuple[dict[str, Fit], bool]:
        """Return the average usage per request by place, and True if the usage varies."""
        has_timing = requests[0].timing is not None
        loads: dict[tuple[MachineKind, ...], _Load] = {}
        fits = {}
        for place in places:
            kinds = place.kinds if has_timing else ()
            if (load := loads.get(kinds)) is None:
                load = loads[kinds] = _Load(requests, self._now, self._lengths, place)
                load.known = self._known[load.identity]
            # Avoid calls for known fits: 100,000 requests have half a million fits.
            wait = self._waits[place.key]
            if (share := load.shares.get(wait)) is None:
                share = load.shares[wait] = load.find_share(*wait)
            if (fit := load.known.get((place.key, share))) is None:
                money = load.find_money(place, share) if place.makes else Decimal(0)
                fit = load.known[place.key, share] = Fit(share, money, load.seconds, load.longest)
            if priorities and place.makes and (priority := priorities.get(place.pool, 0)):
                fit = fit._replace(priority=priority)
            fits[place.key] = fit
        return fits, any(load.varied for load in loads.values())


_Known = dict[tuple[str, float], Fit]
"""(Place, share of a machine) to the usage per request."""


class _Load:
    """Average usage of one kind of machine per request of a group."""

    def __init__(
        self, requests: Sequence[Ordered], now: datetime, lengths: Mapping[int, int], place: Place
    ) -> None:
        self._requests = (
            [request._replace(seconds=request.seconds_on(*place.kinds)) for request in requests]
            if requests[0].timing
            else requests
        )
        self._now = now
        known = [r.seconds for r in self._requests if r.seconds is not None]
        whole = len(known) == len(requests)
        longest = max(known, default=0)
        if longest not in lengths and len(lengths) > _MAX_LENGTHS:
            longest = _rounded_up(longest)
        self.longest = lengths.get(longest, longest) if whole else None
        self.seconds = sum(known) // len(known) if whole else None
        found = Counter(USUAL if r.seconds is None else r.seconds for r in self._requests)
        # Dividing all counts by their greatest common divisor does not change the average.
        times = gcd(*found.values())
        self.varied = len(found) > 1
        """True if the requests of the group use different amounts of machine time."""
        self._count = len(requests) // times
        self._lengths = {length: count // times for length, count in found.items()}
        self._sum = sum(length * count for length, count in self._lengths.items())
        if len(self._lengths) > _MAX_LENGTHS:
            self._lengths = {self._sum // self._count: self._count}
        self.identity = frozenset(self._lengths.items()), self._sum, self.seconds, self.longest
        """Cache key: loads with this identity have equal fits for an equal place and share."""
        self.known: _Known = {}
        self._bills: dict[tuple[Tariff, int], Decimal] = {}
        self.shares: dict[_Wait, float] = {}
        """Maximum wait and boot time in seconds to the share of a machine."""
        self._sums_by_wait: dict[int, tuple[list[int], list[int]]] = {}

    def find_money(self, place: Place, share: float) -> Decimal:
        """Return the average cost of a request, without the fixed cost `place.setup`.

        A request that fills its machine (`share` 1) is billed in whole increments, else by time.
        """
        tariff, setup = place.tariff, place.setup_seconds
        is_by_second = tariff and (tariff.increment, tariff.cap) == (1, None)
        if tariff is None or share < 1 or (is_by_second and tariff.minimum <= setup):
            return place.price * self._sum / 3600 / self._count
        if (tariff, setup) not in self._bills:
            bills = (count * bill(tariff, setup + each) for each, count in self._lengths.items())
            self._bills[tariff, setup] = sum(bills, Decimal(0)) / self._count
        return self._bills[tariff, setup] - place.setup

    def find_share(self, wait: int, boot: int) -> float:
        """Return the average share of a machine per request; long or old requests count as 1."""
        whole = len(self._requests)
        if wait <= boot:
            return 1.0
        if wait not in self._sums_by_wait:
            most = timedelta(seconds=wait)
            # The durations of requests that waited less than `wait`, and their prefix sums.
            seconds = sorted(
                r.seconds
                for r in self._requests
                if r.seconds is not None and (r.since is None or self._now - r.since < most)
            )
            self._sums_by_wait[wait] = seconds, [0, *accumulate(seconds)]
        seconds, sums = self._sums_by_wait[wait]
        shorter = bisect_right(seconds, wait - boot)
        self.varied |= 0 < shorter < whole
        return (whole - shorter + sums[shorter] / (wait - boot)) / whole
