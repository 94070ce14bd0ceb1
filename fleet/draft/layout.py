"""This module lays out what allocation chooses among: who waits, where they could be served."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate, groupby
from operator import attrgetter

from fleet.budgets import Account, open_accounts
from fleet.budgets.spending_limits import spending_limits
from fleet.catalogue.billing import Tariff, bill, tariff_of
from fleet.census.units import State, Unit
from fleet.demand import Ordered, Payer, Signed, Supply
from fleet.demand.choices import Fit, Group, Place, Rank, Row
from fleet.demand.durations import USUAL, remaining_seconds
from fleet.draft import Draft
from fleet.draft.limits import Use, blocked_rows, find_uses, limited_tags, pool_rows, tag_rows
from fleet.facts import World
from fleet.making import Option
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.vocabulary import Vocabulary

_STEP = timedelta(minutes=10)
"""Who waits for twice as long is of an earlier rank, from this on; age inside a step is equal."""
_LENGTHS = 64
"""Where more different lengths than these wait, budgets count each rounded up."""
_CLASSES = {"high": -1, "normal": 0, "low": 1}


@dataclass(frozen=True)
class Layout:
    """What allocation chooses among, in this run."""

    groups: tuple[Group, ...]
    places: Mapping[str, Place]
    rows: tuple[Row, ...]
    accounts: tuple[Account, ...]
    uses: tuple[Use, ...]
    """What counts to the limits of tags and queues."""


def lay_out(
    fleet: Fleet,
    world: World,
    drafts: Mapping[str, Draft],
    supplies: Mapping[str, Supply],
    demand: Sequence[Signed],
) -> Layout:
    """Return the groups, places and limits of this run."""
    places = {place.key: place for place in _places(fleet, world, drafts, supplies)}
    groups = tuple(_groups(fleet, world, drafts, places, demand))
    census = {name: draft.census for name, draft in drafts.items()}
    accounts = open_accounts(fleet, world, census, groups, places.values())
    uses = find_uses(fleet, drafts, groups)
    rows = (
        *pool_rows(drafts, places.values()),
        *tag_rows(uses),
        *blocked_rows(fleet, groups),
        *(account.row for account in accounts),
    )
    return Layout(groups, places, rows, accounts, uses)


def _places(
    fleet: Fleet, world: World, drafts: Mapping[str, Draft], supplies: Mapping[str, Supply]
) -> Iterator[Place]:
    for key, supply in supplies.items():
        if supply.units:
            draft = drafts.get(supply.pool)
            census = draft.census if draft else None
            units = {u.name: u for u in (*census.units, *census.unseen)} if census else {}
            parts = (_part(fleet, world, draft, units.get(name)) for name in supply.units)
            yield Place(key, supply.pool, makes=False, room=sum(parts))
    for draft in drafts.values():
        for option in draft.options if not draft.closed else ():
            if not option.closed:
                yield _to_be_made(fleet, draft, option)


def _part(fleet: Fleet, world: World, draft: Draft | None, unit: Unit | None) -> float:
    """Return how much of target_wait a worker has for more; a busy one ends its work first."""
    if draft is None or unit is None or unit.state is not State.BUSY:
        return 1.0
    wait = draft.pool.target_wait if draft.pool else None
    left = remaining_seconds(fleet, unit.worker, world.time) if unit.worker else None
    return max(0.0, 1 - left / wait) if wait and left is not None else 0.0


def _to_be_made(fleet: Fleet, draft: Draft, option: Option) -> Place:
    pool = draft.pool
    if pool is None:
        raise TypeError(draft.name)
    # It boots, works, is idle until its time is over, and two runs look: one drains, one deletes.
    patience = 0 if draft.on_demand else pool.retire.idle_after
    seconds = pool.boot.expected + patience + 2 * fleet.cadence
    tariff = tariff_of(fleet, pool, option.type, option.market)
    return Place(
        key=option.key,
        pool=draft.name,
        makes=True,
        type=option.type,
        market=option.market,
        setup=bill(tariff, seconds) if tariff else Decimal(0),
        setup_seconds=seconds,
        price=option.price or Decimal(0),
    )


_Key = tuple[Rank, int, Payer, frozenset[str], int]


def _groups(
    fleet: Fleet,
    world: World,
    drafts: Mapping[str, Draft],
    places: Mapping[str, Place],
    demand: Sequence[Signed],
) -> Iterator[Group]:
    """Yield requests together that have the same places, rank and payer."""
    vocabulary = Vocabulary(fleet)
    limited = limited_tags(fleet, vocabulary)
    ways: defaultdict[str, list[str]] = defaultdict(list)
    for place in places.values():
        if place.makes:
            ways[place.pool].append(place.key)
    pools = {place.key: _pool_at(fleet, drafts, place) for place in places.values()}
    # A budget weighs the longest of a group, so that groups are of about one length.
    budgeted = bool(spending_limits(fleet))
    lengths = _lengths(demand) if budgeted else {}
    together: defaultdict[_Key, list[Ordered]] = defaultdict(list)
    known: dict[tuple[tuple[str, ...], ...], int] = {}
    choices: dict[tuple[str, ...], int] = {}  # numbered, for they are slow to hash
    for signed in demand:
        tags = limited(signed.ask.required)
        fitting = signed.workers_of, signed.machines_of
        if fitting not in known:
            keys = (
                *(key for key in signed.workers_of if key in places),
                *(way for pool in signed.machines_of for way in ways[pool]),
            )
            known[fitting] = choices.setdefault(keys, len(choices))
        able = known[fitting]
        classed = class_of(fleet, vocabulary, signed.ask.required)
        for steps, requests in _by_age(signed.requests, world.time).items():
            rank: Rank = (classed, -signed.priority, -steps)
            for length, alike in _by_length(requests, lengths).items():
                together[rank, able, signed.payer, tags, length] += alike
    at = [tuple(places[key] for key in keys) for keys in choices]
    for (rank, able, payer, tags, _), requests in together.items():
        requests.sort()
        fits = _Fits(pools, requests, world.time, lengths)
        yield Group(
            id=requests[0].key,
            rank=rank,
            requests=tuple(requests),
            fits={place.key: fits.at(place) for place in at[able]},
            payer=payer,
            tags=tags,
        )


def _lengths(demand: Sequence[Signed]) -> dict[int, int]:
    """Return what each length counts as under budgets: itself, or rounded up where many differ."""
    found = {request.seconds or 0 for signed in demand for request in signed.requests}
    return {each: _rounded_up(each) if len(found) > _LENGTHS else each for each in found}


def _rounded_up(seconds: int) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on that is not below."""
    power = 1 << max(0, seconds - 1).bit_length()
    return power * 3 // 4 if power * 3 // 4 >= seconds else power


def _pool_at(
    fleet: Fleet, drafts: Mapping[str, Draft], place: Place
) -> tuple[Pool | None, Tariff | None]:
    """Return the pool of a place, and how machines made there are billed."""
    draft = drafts.get(place.pool)
    pool = draft.pool if draft else None
    if pool is None or not place.makes:
        return pool, None
    return pool, tariff_of(fleet, pool, place.type, place.market)


def class_of(fleet: Fleet, vocabulary: Vocabulary, required: Iterable[str]) -> int:
    """Return the class of what a request asks for: low wins, so that it displaces nothing."""
    classes = {
        _CLASSES[fleet.tags[name].priority]
        for tag in required
        for name in vocabulary.names_of(tag)
        if "priority" in fleet.tags[name].model_fields_set
    }
    return 1 if 1 in classes else min(classes, default=0)


def _by_age(requests: Sequence[Ordered], now: datetime) -> dict[int, list[Ordered]]:
    """Return requests by how long they wait, in steps that double."""
    found: defaultdict[int, list[Ordered]] = defaultdict(list)
    # Those that a queue groups wait since one time.
    for since, alike in groupby(requests, key=attrgetter("since")):
        waited = max(timedelta(), now - since) if since else timedelta()
        found[(waited // _STEP).bit_length()] += alike
    return found


def _by_length(requests: list[Ordered], lengths: Mapping[int, int]) -> dict[int, list[Ordered]]:
    """Return requests by what their length counts as; together where nothing looks at that."""
    if not lengths:
        return {0: requests}
    found: defaultdict[int, list[Ordered]] = defaultdict(list)
    for request in requests:
        found[lengths[request.seconds or 0]].append(request)
    return found


class _Fits:
    """What one request of a group takes of places, on average."""

    def __init__(
        self,
        pools: Mapping[str, tuple[Pool | None, Tariff | None]],
        requests: Sequence[Ordered],
        now: datetime,
        lengths: Mapping[int, int],
    ) -> None:
        self._pools = pools
        self._requests = requests
        self._now = now
        known = [r.seconds for r in requests if r.seconds is not None]
        whole = len(known) == len(requests)
        longest = max(known, default=0)
        self._longest = lengths.get(longest, longest) if whole else None
        self._seconds = sum(known) // len(known) if whole else None
        self._shares: dict[tuple[int, int], float] = {}
        self._in_time: dict[int, tuple[list[int], list[int]]] = {}

    def at(self, place: Place) -> Fit:
        """Return what one takes of a place."""
        pool, tariff = self._pools[place.key]
        share = self._share(pool) if pool else 1.0
        if not place.makes or pool is None:
            return Fit(share, Decimal(0), self._seconds, self._longest)
        seconds = USUAL if self._seconds is None else self._seconds
        if tariff is None or share < 1:
            money = place.price * seconds / 3600
        else:
            money = bill(tariff, place.setup_seconds + seconds) - place.setup
        return Fit(share, money, self._seconds, self._longest)

    def _share(self, pool: Pool) -> float:
        """Return the share of a machine: 1 where it serves one request within target_wait."""
        if pool.target_wait is None:
            return 1.0
        key = (pool.target_wait, pool.boot.expected)
        if key not in self._shares:
            self._shares[key] = self._average(*key)
        return self._shares[key]

    def _average(self, wait: int, boot: int) -> float:
        """Return what a request takes on average: a whole machine if it is long or waits long."""
        whole = len(self._requests)
        if wait <= boot:
            return 1.0
        seconds, sums = self._short(wait)
        shorter = bisect_right(seconds, wait - boot)
        return (whole - shorter + sums[shorter] / (wait - boot)) / whole

    def _short(self, wait: int) -> tuple[list[int], list[int]]:
        """Return the lengths, sorted, of those that have not waited for this long, and sums."""
        if wait not in self._in_time:
            most = timedelta(seconds=wait)
            seconds = sorted(
                r.seconds
                for r in self._requests
                if r.seconds is not None and (r.since is None or self._now - r.since < most)
            )
            self._in_time[wait] = seconds, [0, *accumulate(seconds)]
        return self._in_time[wait]
