"""Requests that this fleet.yaml treats alike, and what allocation chooses among to serve them.

The queue's own order decides who is served first: priority, then age, then id. Limits are rows
with a name, so that a plan can say which key of fleet.yaml stopped what.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property
from itertools import chain
from math import inf
from operator import itemgetter
from sys import intern
from typing import NamedTuple

from fleet.model.facts import Demand, Market, Request, Unknown, World
from fleet.model.prices import Tariff, bill
from fleet.model.values import digest
from fleet.planner.durations import Durations, Expected, Kind, Timing
from fleet.planner.inventory import demand_trouble
from fleet.planner.teams import Teams, teams_of
from fleet.schema.model import Fleet, Limits, Otherwise, TicketQueue
from fleet.schema.remembered import remembered
from fleet.tagrules.context import QueueContext, context_of
from fleet.tagrules.offers import Ask, Matcher, Offer
from fleet.tagrules.requests import Asking, Difference, Judge, Memberships, Refusal
from fleet.tagrules.vocabulary import Vocabulary, write_minimums

Order = tuple[int, float, str, int, str, int]
"""Priority, lowest for the highest; seconds since when it waits; queue; id; which of its group."""
_MOST_DIGITS = 20
"""A longer id is no number of any queue; Python refuses to convert very long ones."""


@dataclass(frozen=True)
class Supply:
    """Workers of one pool that offer the same; `key` is the pool's name for its future ones."""

    pool: str
    queues: frozenset[str]
    offer: Offer
    units: tuple[str, ...] = ()


class Ordered(NamedTuple):
    """One waiting request: adds its place in the queue's order."""

    order: Order
    key: str
    seconds: int | None = None
    """How long it is expected to run; None where nothing says so."""
    since: datetime | None = None
    timing: Timing | None = None
    """What that depends on; None: every machine takes as long."""

    def seconds_on(self, *kinds: Kind) -> int | None:
        """Return how long it is expected to run on the slowest of some machines."""
        return self.timing.slowest(kinds, self.seconds) if self.timing else self.seconds


class Payer(NamedTuple):
    """The fields of a request that a budget, or a limit of its queue or tags, looks at."""

    submitter: str | None = None
    owner: str | None = None
    scope: str | None = None
    team: str | None = None
    sandbox: str | None = None
    desk: str | None = None
    """The queue of tickets it waits in, where that has limits of its own."""
    without: tuple[tuple[str, str], ...] = ()
    """Supplies, each with a tag that it does without there (`otherwise`)."""

    @property
    def said(self) -> tuple[str | None, ...]:
        """Return what identifies it, as it was written before there were tickets."""
        said = (self.submitter, self.owner, self.scope, self.team)
        return (*said, self.sandbox, self.desk) if self.sandbox or self.desk else said

    def lacks(self, place: str) -> frozenset[str]:
        """Return the tags that it does without at a place."""
        supply = place.partition("/")[0]
        return frozenset(tag for key, tag in self.without if key == supply)


class Ruled(NamedTuple):
    """A tag that a request asks for by a rule of fleet.yaml; `path` is the rule's."""

    tag: str
    path: tuple[str | int, ...]


class Shape(NamedTuple):
    """What requests of one signature have in common, queue and priority aside."""

    ask: Ask
    refused: tuple[Refusal, ...]
    differences: tuple[Difference, ...]
    held: bool


@dataclass(frozen=True)
class Signed:
    """Requests of one signature, in the order they are served: adds the tags that rules give."""

    id: str
    queue: str
    ask: Ask
    priority: int
    payer: Payer
    requests: tuple[Ordered, ...]
    refused: tuple[Refusal, ...]
    differences: tuple[Difference, ...]
    held: bool
    """The queue stored a tag that was asked for without permission: nothing may serve it."""
    workers_of: tuple[str, ...]
    machines_of: tuple[str, ...]
    last_of: frozenset[str] = frozenset()
    """Those of `workers_of` that are on demand for others: it gets what these leave."""
    dropped: frozenset[str] = frozenset()
    """Required tags without which it may run too, for it has waited long enough (`otherwise`)."""
    timing: Timing | None = None
    """How their time depends on the machine, and how long they may run."""
    ruled: tuple[Ruled, ...] = ()
    """Where fleet itself assigns: the tags that rules of fleet.yaml give some of them."""
    turns: Mapping[str, "Rank"] = field(default_factory=dict, compare=False)
    """Request to its rank by turn, if others would overtake it by age or cost."""


class _Kind(NamedTuple):
    """What makes requests one signature."""

    queue: str
    shape: Shape
    priority: int
    payer: Payer
    dropped: frozenset[str]
    timing: Timing | None


class _Alike(NamedTuple):
    """What requests share that ask for the same of the same queue, for the same payer."""

    asking: Asking
    kind: _Kind
    """With every required tag: which one it may run without by now is another matter."""


_Read = tuple[Request, _Alike, list["Ordered"]]
"""A request with what follows from it, whatever the time of day."""


class _Reader:
    """Says what follows from requests; it stays right while only requests and time change."""

    def __init__(self, fleet: Fleet, world: World, *, with_provided: bool) -> None:
        self._judge = judge_of(fleet, world, with_provided=with_provided)
        self._durations = Durations(fleet, world)
        self._payer_of = _payers(fleet, teams_of(fleet, world))
        self._alike: dict[object, _Alike] = {}  # an ask is slow to hash, and most share one
        self.latest: dict[str, dict[str, _Read]] = {}
        """By queue and id, what the latest run had read, where that is kept."""

    def read(self, queue: str, request: Request, told: QueueContext) -> _Read:
        """Return what follows from a request."""
        asking = self._judge.ask_of_alike(request, told)
        expected = self._durations.of(queue, request)
        payer = self._payer_of(queue, request, asking.ask.required)
        timing = expected[1]
        key = (queue, id(asking), request.priority, payer, id(timing))
        alike = self._alike.get(key)
        if alike is None:
            kind = _Kind(queue, _shape(asking), request.priority, payer, _NOTHING, timing)
            alike = self._alike[key] = _Alike(asking, kind)  # which keeps both ids
        return request, alike, ordered(queue, request, expected)


def _reader_of(fleet: Fleet, world: World, *, with_provided: bool) -> _Reader:
    """Return the reader of the run before, unless something else than requests has changed."""
    rests_on: list[object] = [intern(f"{world.time.date()} {with_provided}"), world.members]
    for queue, demand in world.demands():
        rests_on += [intern(queue), context_of(fleet, queue, demand), demand.runs]
    return remembered(
        fleet,
        "reader of requests",
        tuple(rests_on),
        lambda: _Reader(fleet, world, with_provided=with_provided),
    )


def sign_demand(
    fleet: Fleet, world: World, supplies: Mapping[str, Supply], *, again: bool = False
) -> tuple[Signed, ...]:
    """Return the readable demand of every queue by signature, in the order of service.

    `again`: what waits is the same objects as in the run before, as in a simulation, so that what
    follows from them is kept until the next run.
    """
    with_provided = any(supply.offer.requires for supply in supplies.values())
    reader = (_reader_of if again else _Reader)(fleet, world, with_provided=with_provided)
    drops = Drops(fleet, world.time)
    groups: defaultdict[_Kind, list[list[Ordered]]] = defaultdict(list)
    ruled: defaultdict[_Kind, set[Ruled]] = defaultdict(set)
    known: dict[tuple[int, frozenset[str]], list[list[Ordered]]] = {}
    for queue, reading in sorted(world.queues.items()):
        demand = reading.demand
        if not isinstance(demand, Demand) or demand_trouble(fleet, world, queue):
            continue
        told = context_of(fleet, queue, demand)
        before, kept = reader.latest.get(queue, {}), dict[str, _Read]()
        may_drop = drops.are_stated and not demand.stored
        for request in _each_once(demand.requests):
            read = before.get(request.id)
            if read is None or read[0] is not request:
                read = reader.read(queue, request, told)
            if again:
                kept[request.id] = read
            _, alike, in_order = read
            required, since = alike.asking.ask.required, request.pending_since
            dropped = drops.of(required, since) if may_drop else _NOTHING
            group = known.get((id(alike), dropped))
            if group is None:
                kind = alike.kind._replace(dropped=dropped)
                group = known[id(alike), dropped] = groups[kind]
                if isinstance(fleet.queues.get(queue), TicketQueue):
                    ruled[kind] |= {Ruled(o.tag, o.path) for o in alike.asking.origins if o.path}
            group.append(in_order)
        reader.latest[queue] = kept
    able = {queue: _Able(supplies, queue) for queue in world.queues}
    signed = [
        _sign(kind, requests, able[kind.queue].to_serve(kind), ruled.get(kind, ()))
        for kind, requests in groups.items()
    ]
    return tuple(sorted(signed, key=lambda s: (s.requests[0].order, s.id)))


def judge_of(fleet: Fleet, world: World, *, with_provided: bool = True) -> Judge:
    """Return who says what the requests of a world ask for, on its day."""
    members = world.members

    def find() -> Memberships:
        if isinstance(members, Unknown):
            return members
        return {group: frozenset(users) for group, users in members.items()}

    known = remembered(fleet, "members", (members,), find)
    return Judge(fleet, known, world.time.date(), with_provided=with_provided)


def _each_once(requests: Collection[Request]) -> Iterable[Request]:
    """Return the requests without repeats of an id, as pages that shift while they are read."""
    if len({request.id for request in requests}) == len(requests):
        return requests
    found: dict[str, Request] = {}
    for request in requests:
        known = found.setdefault(request.id, request)
        if known is not request:
            both = (known, request)
            found[request.id] = min(both, key=lambda r: (-r.priority, r.model_dump_json()))
    return found.values()


def _payers(fleet: Fleet, teams: Teams) -> Callable[[str, Request, frozenset[str]], Payer]:
    """Return the function from queue, request and required tags to its payer.

    It has only the fields that a budget, or a limit of its queue or of its tags, looks at.
    """
    vocabulary = Vocabulary(fleet)
    desks = {n: desk for n, desk in fleet.queues.items() if isinstance(desk, TicketQueue)}
    limited = {n for n, desk in desks.items() if desk.blocked or any(limits_of(desk.limits))}
    of_desk = {name: _fields_of(desk.limits) for name, desk in desks.items()}
    of_tag = {name: _fields_of(rule.limits) for name, rule in fleet.tags.items()}
    of_budgets = {
        field
        for budget in fleet.budgets.values()
        for field in ("scope", "team", "owner")
        if getattr(budget, field) is not None
    }
    if any(desk.blocked for desk in desks.values()):
        of_budgets.add("owner")

    @cache
    def looked_at(queue: str, required: frozenset[str]) -> set[str]:
        names = {name for tag in required for name in vocabulary.names_of(tag)}
        of_tags = (of_tag[name] for name in names if name in of_tag)
        return of_budgets.union(*of_tags, of_desk.get(queue, ()))

    def payer_of(queue: str, request: Request, required: frozenset[str]) -> Payer:
        fields = looked_at(queue, required)
        return Payer(
            submitter=request.requester if "submitter" in fields else None,
            owner=request.owner if "owner" in fields else None,
            scope=request.scope if "scope" in fields else None,
            team=teams.of(request) if "team" in fields else None,
            sandbox=request.sandbox if "sandbox" in fields else None,
            desk=queue if queue in limited else None,
        )

    return payer_of


def _fields_of(limits: Limits) -> set[str]:
    """Return the fields of a payer that limits look at."""
    return {field for field, most in limits.per if most is not None}


def limits_of(limits: Limits) -> Iterator[tuple[str, int]]:
    """Yield the figures that are stated: of a field of Payer, or `total`."""
    if limits.total is not None:
        yield "total", limits.total
    for of, most in limits.per:
        if most is not None:
            yield of, most


def ordered(queue: str, request: Request, expected: Expected = (None, None)) -> list[Ordered]:
    """Return a request, each of a group by itself, with its place in the queue's order."""
    since = request.pending_since.timestamp() if request.pending_since else inf
    is_number = request.id.isdecimal() and len(request.id) <= _MOST_DIGITS
    number = int(request.id) if is_number else 0
    key, first = f"{queue}/{request.id}", request.pending_since
    priority, own = -request.priority, request.id
    seconds, timing = expected
    ids = [key] if request.count == 1 else [f"{key}#{n}" for n in range(1, request.count + 1)]
    return [
        Ordered((priority, since, queue, number, own, nth), each, seconds, first, timing)
        for nth, each in enumerate(ids, 1)
    ]


def _shape(asking: Asking) -> Shape:
    return Shape(asking.ask, asking.refused, asking.differences, asking.held)


_NOTHING: frozenset[str] = frozenset()


class Drops:
    """Says which tags a request may do without because it has waited for them long enough."""

    def __init__(self, fleet: Fleet, now: datetime) -> None:
        self._now = now
        self._vocabulary = Vocabulary(fleet)
        self._after = {
            tag: rule.otherwise.after
            for tag, rule in fleet.tags.items()
            if isinstance(rule.otherwise, Otherwise)
        }

    @property
    def are_stated(self) -> bool:
        """Say whether any tag may be done without at some time."""
        return bool(self._after)

    def of(self, required: Iterable[str], since: datetime | None) -> frozenset[str]:
        """Return the tags that a request may run without by now."""
        if since is None:
            return _NOTHING
        return self.within(required, (self._now - since).total_seconds())

    def within(self, required: Iterable[str], seconds: float) -> frozenset[str]:
        """Return the tags that a request may run without once it has waited for so long."""
        return frozenset(tag for tag, _, after in self.delays(required) if seconds >= after)

    def delays(self, required: Iterable[str]) -> Iterator[tuple[str, str, int]]:
        """Yield each required tag with `otherwise`, its key in fleet.yaml and the seconds."""
        for tag in required:
            for name in self._vocabulary.names_of(tag):
                if name in self._after:
                    yield tag, name, self._after[name]


class _Able:
    """Who can serve requests of one queue; signatures that ask alike share the answer."""

    def __init__(self, supplies: Mapping[str, Supply], queue: str) -> None:
        self._supplies = {key: s for key, s in supplies.items() if queue in s.queues}
        self._matcher = Matcher({key: s.offer for key, s in self._supplies.items()})
        self._on_demand = frozenset[str]().union(*(s.offer.on_demand for s in supplies.values()))
        self._known: dict[object, _Choices] = {}
        self._kept: dict[frozenset[str], list[frozenset[str]]] = {}

    def to_serve(self, kind: _Kind) -> "_Choices":
        """Return the workers that fit, and the pools that may make a machine for it."""
        asks = self._asks(kind) if not kind.shape.held else ()
        each = tuple((self._matcher.fitting(ask), ask.required & self._on_demand) for ask in asks)
        if each not in self._known:
            # What has all that was asked for comes last, so that it is asked for there.
            called = {key: tags for fitting, tags in each for key in fitting}
            last = frozenset(key for key, asked in called.items() if self._is_last(key, asked))
            pools = (key for key in sorted(called) if key == self._supplies[key].pool)
            able = tuple(key for key in pools if key not in last)
            self._known[each] = _Choices(tuple(sorted(called)), able, last)
        choices = self._known[each]
        if not kind.dropped:
            return choices
        offers = {key: self._supplies[key].offer.provides for key in choices.workers_of}
        without = ((key, tag) for key in offers for tag in sorted(kind.dropped - offers[key]))
        return choices._replace(without=tuple(without))

    def _asks(self, kind: _Kind) -> list[Ask]:
        """Return what may be asked for: of the tags that are dropped, those that a worker has.

        The most come last.
        """
        ask, dropped = kind.shape.ask, kind.dropped
        if dropped not in self._kept:
            found = {
                _NOTHING,
                *(dropped & each.offer.provides for each in self._supplies.values()),
            }
            self._kept[dropped] = sorted(found, key=lambda tags: (len(tags), sorted(tags)))
        least = ask.required - dropped
        return [ask._replace(required=least | tags) for tags in self._kept[dropped]]

    def _is_last(self, key: str, asked: frozenset[str]) -> bool:
        """Say whether machines are on demand, and made for who asks for other tags than these."""
        on_demand = self._supplies[key].offer.on_demand
        return bool(on_demand) and not on_demand & asked


class _Choices(NamedTuple):
    """Supplies that fit, the pools among them that may make a machine, and what is for others.

    `without` names the supplies that lack a tag without which a request may run.
    """

    workers_of: tuple[str, ...]
    machines_of: tuple[str, ...]
    last_of: frozenset[str]
    without: tuple[tuple[str, str], ...] = ()


def _sign(
    kind: _Kind, requests: list[list[Ordered]], choices: _Choices, ruled: Iterable[Ruled]
) -> Signed:
    queue, shape, priority, payer, dropped, timing = kind
    ask = shape.ask
    said: list[object] = [queue, required_of(ask), sorted(ask.provided), priority]
    said += [payer.said] if any(payer) else []
    said += [sorted(dropped)] if dropped else []
    said += [timing.said] if timing is not None and timing.said else []
    if shape.refused or shape.differences:
        said.append([each.because for each in shape.refused])
        said.append([each.because for each in shape.differences])
    # What a queue tells as one stays together, in the order that it has.
    in_order = sorted(requests, key=itemgetter(0))
    return Signed(
        id=digest(said)[:12],
        queue=queue,
        ask=ask,
        priority=priority,
        payer=payer._replace(without=choices.without),
        requests=tuple(chain.from_iterable(in_order)),
        refused=shape.refused,
        differences=shape.differences,
        held=shape.held,
        workers_of=choices.workers_of,
        machines_of=choices.machines_of,
        last_of=choices.last_of,
        dropped=dropped,
        timing=timing,
        ruled=tuple(sorted(ruled)),
    )


def required_of(ask: Ask) -> list[str]:
    """Return all that a request requires, minimums among it, sorted."""
    return sorted((*ask.required, *write_minimums(ask.minimums)))


Path = tuple[str | int, ...]
Rank = tuple[int, ...]
"""A strict class of service, the first served smallest: priority of its tags, the queue's own
priority, and how long it waits in doubling steps."""


class Fit(NamedTuple):
    """What one request of a group takes of a place."""

    share: float = 1.0
    """Of one machine, between 0 and 1: 1 where a machine serves one request."""
    money: Decimal = Decimal(0)
    """What serving it costs beyond `Place.setup`; 0 where the machine is paid for anyway."""
    seconds: int | None = 0
    """How long it is expected to run there, on average; None: unknown."""
    longest: int | None = 0
    """How long the longest of the group is expected to run; None: unknown."""
    priority: int = 0
    """How much the pool is preferred for what it asks for (`pools.NAME.priorities`)."""


@dataclass(frozen=True)
class Group:
    """Waiting requests with the same choices, that count to the same limits: adds the choices."""

    id: str
    rank: Rank
    requests: tuple[Ordered, ...]
    """In the order they are served."""
    fits: Mapping[str, Fit]
    """Place to what one of them takes there; places that do not fit are absent."""
    payer: Payer = field(default_factory=Payer)
    last: frozenset[str] = frozenset()
    """Places with machines on demand that others ask for: these come first."""
    tags: frozenset[str] = frozenset()
    """Tags they require, as far as a limit or a budget looks at them."""
    by_priority: bool = False
    """Priorities of pools count before money, not only where it is equal."""
    varied: bool = False
    """A request takes more or less of a place than `fits` says, which is the average."""
    coarse: bool = False
    """The whole steps of time that are billed were counted for the average length alone."""
    is_held: bool = False
    """Tickets of a sandbox, where a budget counts how long `reuse` keeps their machines."""

    def is_averaged(self, places: Mapping[str, "Place"], *, is_left: bool) -> bool:
        """Return whether the cost depends on which of its requests is served at which place.

        `is_left`: some are not served.
        """
        if not self.varied:
            return False
        timed = self.requests[0].timing is not None
        at = [(places[key], fit) for key, fit in self.fits.items() if key in places]
        if self.coarse and any(place.step for place, _ in at):
            return True
        return is_left or len({(*place.costs(timed=timed), fit) for place, fit in at}) > 1


@dataclass(frozen=True)
class Place:
    """Where requests can be served: free workers that offer the same, or machines to be made."""

    key: str
    pool: str
    makes: bool
    """True: machines to be made, of one type and market; False: workers that exist."""
    room: float = 0.0
    """Machines that are free, in parts; without meaning where machines are made."""
    type: str = ""
    market: Market = "on-demand"
    setup: Decimal = Decimal(0)
    """Money that one more machine costs beside the work: boot and idle time until its deletion."""
    setup_seconds: int = 0
    """Seconds that one more machine costs beside the work."""
    price: Decimal = Decimal(0)
    """Money per hour of one machine, address and disk included."""
    kinds: tuple[Kind, ...] = ()
    """What its machines are, as far as the time that work takes depends on it."""
    tariff: Tariff | None = None
    """How a machine made there is billed; None: its price is unknown, or none is made."""
    units: frozenset[str] = field(default=frozenset(), compare=False)
    """The names of the workers at this place; empty if machines are made."""

    @property
    def step(self) -> Decimal:
        """Return the money of one step of time that is billed as a whole; 0: seconds are."""
        if self.tariff is None or self.tariff.increment == 1:
            return Decimal(0)
        return self.tariff.price * self.tariff.increment / 3600

    @property
    def unused(self) -> Decimal:
        """Return the money of the time that `setup` pays for and does not take."""
        return self.setup - self.price * self.setup_seconds / 3600 if self.step else Decimal(0)

    def costs(self, *, timed: bool) -> tuple[object, ...]:
        """Return the figures that the cost of a request depends on; `timed`: the kinds too."""
        return self.makes, self.tariff, self.setup_seconds, self.price, timed and self.kinds

    def billed(self, seconds: int) -> Decimal | None:
        """Return what a machine made there is billed if its work takes so long."""
        return bill(self.tariff, self.setup_seconds + seconds) if self.tariff else None


@dataclass(frozen=True, eq=False)
class Row:
    """One limit as a linear row: what is chosen may take no more than `room` of it."""

    path: Path
    because: str
    """What holds, in a sentence that names its figure: `pool arm is at workers.max (3)`."""
    room: Decimal
    machines: Mapping[str, Decimal] = field(default_factory=dict)
    """Place to what each machine made there takes."""
    requests: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)
    """Group and place to what each request served there takes."""
    kept: Mapping[str, Decimal] = field(default_factory=dict)
    """Place to what each machine takes that is made there to stay, for min or spare."""
    when: str = ""
    """Of a budget: the period that it is about, as `BudgetVerdict.when`."""
    until: datetime | None = None
    """End of the period of a budget."""
    unit: str = "machines or requests"
    """Unit of `room`; of a budget its currency, or machine hours."""
    over: Decimal | None = Decimal(0)
    """Amount in use above the limit; None: the use is unknown, and no higher limit helps."""

    def taken(self, made: Mapping[str, int], served: Mapping[tuple[str, str], int]) -> Decimal:
        """Return what so many machines and requests take, by place, and by group and place."""
        own = (factor * made[place] for place, factor in self.machines.items() if place in made)
        amounts = zip(map(self.requests.get, served), served.values(), strict=True)
        asked = (each * count for each, count in amounts if each) if self.requests else ()
        return sum(own, Decimal(0)) + sum(asked, Decimal(0))

    @cached_property
    def least(self) -> Mapping[str, Decimal]:
        """Return of each place the least that a request served there takes."""
        found: dict[str, Decimal] = {}
        for (_, place), amount in self.requests.items():
            found[place] = min(amount, found.get(place, amount))
        return found
