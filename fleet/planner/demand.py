"""Group waiting requests by signature (equal requirements, priority and payer).

Also define the data model of the allocation problem. Requests are served in queue order: priority,
then age, then id. Each limit has the path of its key in fleet.yaml for messages.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cache, cached_property
from itertools import chain
from math import inf
from operator import itemgetter
from typing import NamedTuple

from fleet.model.decisions import NoMachineReason
from fleet.model.facts import Demand, Request, Unknown, Work, World
from fleet.model.prices import Tariff, bill
from fleet.model.values import digest
from fleet.planner.durations import Durations, Expected, MachineKind, Timing
from fleet.planner.inventory import demand_trouble
from fleet.schema.model import TEAM_MEMBERS, Fleet, Limits, Market, Otherwise, TicketQueue
from fleet.tagrules.derive import context_of
from fleet.tagrules.offers import Ask, Matcher, Offer
from fleet.tagrules.requests import Judge, Memberships, TagOrigin, TagRefusal, TagRequirements
from fleet.tagrules.vocabulary import Vocabulary, write_minimums
from fleet.words.limits import add_pool

Order = tuple[int, float, str, int, str, int]
"""Sort key for the queue order.

The parts are the negated priority, the start of the wait (epoch seconds), the queue, the id as a
number, the id, and the index among the members of one request.
"""
_MAX_ID_DIGITS = 20
"""Maximum digits of a numeric id: Python refuses to convert very long strings to int."""


@dataclass(frozen=True)
class Supply:
    """Workers of a pool that offer equal tags. Without `units`: future workers of the pool."""

    pool: str
    queues: frozenset[str]
    offer: Offer
    units: tuple[str, ...] = ()


class Ordered(NamedTuple):
    """A waiting request with its position in the service order of its queue."""

    order: Order
    key: str
    seconds: int | None = None
    """Expected duration in seconds; None if unknown."""
    since: datetime | None = None
    timing: Timing | None = None
    """Durations per machine type and the deadline; None without both."""

    def seconds_on(self, *kinds: MachineKind) -> int | None:
        """Return the expected duration in seconds on the slowest of these machine kinds."""
        return self.timing.slowest(kinds, self.seconds) if self.timing else self.seconds


class Payer(NamedTuple):
    """The requester of a request, with only the fields that a budget or limit uses."""

    submitter: str | None = None
    owner: str | None = None
    scope: str | None = None
    team: str | None = None
    sandbox: str | None = None
    desk: str | None = None
    """The ticket queue of the request; None if the queue has no limits."""
    without: tuple[tuple[str, str], ...] = ()
    """(Supply, tag) pairs: the required tags that the request waives at a supply (`otherwise`)."""

    @property
    def identity(self) -> tuple[str | None, ...]:
        """Return the identifying fields, without sandbox and ticket queue if both are unset.

        So requests without these fields keep the group id that older versions gave them.
        """
        fields = (self.submitter, self.owner, self.scope, self.team)
        return (*fields, self.sandbox, self.desk) if self.sandbox or self.desk else fields

    def lacks(self, place: str) -> frozenset[str]:
        """Return the tags that the payer's requests waive at a place."""
        supply = place.partition("/")[0]
        return frozenset(tag for key, tag in self.without if key == supply)


Ruled = tuple[str, tuple[str | int, ...]]
"""A tag that a rule adds to a request, and the path of the rule in fleet.yaml."""


@dataclass(frozen=True)
class _SignatureKey:
    """The properties that are equal for all requests of one signature."""

    queue: str
    ask: Ask
    refused: tuple[TagRefusal, ...]
    differences: tuple[TagOrigin, ...]
    held: bool
    """No worker may serve these requests, because the queue stored a tag without permission."""
    priority: int
    payer: Payer
    timing: Timing | None = None
    """Durations per machine type and the deadline; None without both."""
    dropped: frozenset[str] = frozenset()
    """Required tags that the requests waive after a long wait (`otherwise`)."""


@dataclass(frozen=True, kw_only=True)
class EqualRequests(_SignatureKey):
    """Equal requests (one signature) in service order; the workers and pools that fit them."""

    id: str
    requests: tuple[Ordered, ...]
    fitting_supplies: tuple[str, ...]
    creating_pools: tuple[str, ...]
    reserved_supplies: frozenset[str] = frozenset()
    """Fitting supplies that are on demand for other tags; requests use them last."""
    ruled: tuple[Ruled, ...] = ()
    """For a ticket queue: tags that rules of fleet.yaml add to some of the requests."""
    turns: Mapping[str, "Rank"] = field(default_factory=dict, compare=False)
    """Request to a rank that replaces its rank by age, if other requests would overtake it."""


def sign_demand(
    fleet: Fleet, world: World, supplies: Mapping[str, Supply]
) -> tuple[EqualRequests, ...]:
    """Group the requests of all readable queues by signature, in service order."""
    with_provided = any(supply.offer.requires for supply in supplies.values())
    judge = judge_of(fleet, world, with_provided=with_provided)
    durations, payer_of = Durations(fleet, world), _payer_function(fleet, teams_of(fleet, world))
    drops = Drops(fleet, world.time)
    groups: defaultdict[_SignatureKey, list[list[Ordered]]] = defaultdict(list)
    ruled: defaultdict[_SignatureKey, set[Ruled]] = defaultdict(set)
    # The few distinct signatures are slow to hash. The values keep the ids in the keys valid.
    known: dict[object, tuple[list[list[Ordered]], TagRequirements, Timing | None]] = {}
    for queue, reading in sorted(world.queues.items()):
        demand = reading.demand
        if not isinstance(demand, Demand) or demand_trouble(fleet, world, queue):
            continue
        told = context_of(fleet, queue, demand)
        may_drop = drops.are_stated and not demand.stored
        for request in _deduplicate(demand.requests):
            asking = judge.ask_of_alike(request, told)
            expected = durations.of(queue, request)
            timing, required = expected[1], asking.ask.required
            payer = payer_of(queue, request, required)
            dropped = drops.of(required, request.pending_since) if may_drop else _NO_TAGS
            alike = queue, id(asking), request.priority, payer, id(timing), dropped
            if alike not in known:
                told_as = asking.ask, asking.refused, asking.differences, asking.held
                kind = _SignatureKey(queue, *told_as, request.priority, payer, timing, dropped)
                known[alike] = groups[kind], asking, timing
                if isinstance(fleet.queues.get(queue), TicketQueue):
                    ruled[kind] |= {(o.tag, o.path) for o in asking.origins if o.path}
            known[alike][0].append(ordered(queue, request, expected))
    able = {queue: _Eligibility(supplies, queue) for queue in world.queues}
    signed = [
        _sign(kind, requests, able[kind.queue].to_serve(kind), ruled.get(kind, ()))
        for kind, requests in groups.items()
    ]
    return tuple(sorted(signed, key=lambda s: (s.requests[0].order, s.id)))


def judge_of(fleet: Fleet, world: World, *, with_provided: bool = True) -> Judge:
    """Return the object that derives the tags a request requires, on the date of the world."""
    members = world.members
    known: Memberships = fleet.cached(
        "members",
        (members,),
        lambda: (
            members
            if isinstance(members, Unknown)
            else {group: frozenset(users) for group, users in members.items()}
        ),
    )
    return Judge(fleet, known, world.time.date(), with_provided=with_provided)


def _deduplicate(requests: Collection[Request]) -> Iterable[Request]:
    """Return the requests without duplicate ids (pages of a queue may shift during a read)."""
    if len({request.id for request in requests}) == len(requests):
        return requests
    found: dict[str, Request] = {}
    for request in requests:
        known = found.setdefault(request.id, request)
        if known is not request:
            both = (known, request)
            found[request.id] = min(both, key=lambda r: (-r.priority, r.model_dump_json()))
    return found.values()


class Teams:
    """The teams of fleet.yaml, indexed by their members.

    If the queue reports no team, the first match decides: user, group, owner, workspace, scope. If
    several teams match at the same level, the first name in the alphabet is used.
    """

    def __init__(self, fleet: Fleet, members: Mapping[str, Iterable[str]]) -> None:
        self.are_stated = bool(fleet.teams)
        self._by_kind: dict[str, dict[str, str]] = {kind: {} for kind in TEAM_MEMBERS}
        for name, team in sorted(fleet.teams.items()):
            for kind, known in self._by_kind.items():
                for member in team.of(kind):
                    known.setdefault(member, name)
        self._of_user: dict[str, str] = {}
        by_group = self._by_kind["groups"]
        for group in sorted(members.keys() & by_group.keys(), key=lambda each: by_group[each]):
            for user in members[group]:
                self._of_user.setdefault(user, by_group[group])

    def of(self, each: Request | Work) -> str | None:
        """Return the team of a request or of running work; None if no team matches."""
        if each.team is not None or not self.are_stated:
            return each.team
        by = self._by_kind
        grouped = [by["groups"][group] for group in each.groups if group in by["groups"]]
        user, workspace, scope = each.requester, each.workspace, each.scope
        if user in self._of_user:
            grouped.append(self._of_user[user])
        found = (
            by["users"].get(user or ""),
            min(grouped, default=None),
            by["owners"].get(each.owner or ""),
            by["workspaces"].get(f"{scope}/{workspace}") if workspace else None,
            by["workspaces"].get(workspace or ""),
            by["scopes"].get(scope or ""),
        )
        return next((team for team in found if team is not None), None)


def teams_of(fleet: Fleet, world: World) -> Teams:
    """Return the teams of fleet.yaml with the observed members of groups."""
    members = world.members
    known = {} if isinstance(members, Unknown) else members
    return fleet.cached("teams", (members,), lambda: Teams(fleet, known))


def _payer_function(fleet: Fleet, teams: Teams) -> Callable[[str, Request, frozenset[str]], Payer]:
    """Return a function that maps queue, request and required tags to the payer."""
    vocabulary = Vocabulary(fleet)
    desks = {n: desk for n, desk in fleet.queues.items() if isinstance(desk, TicketQueue)}
    limited = {n for n, desk in desks.items() if desk.blocked or any(limits_of(desk.limits))}
    of_desk = {name: _limited_fields(desk.limits) for name, desk in desks.items()}
    of_tag = {name: _limited_fields(rule.limits) for name, rule in fleet.tags.items()}
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


def _limited_fields(limits: Limits) -> set[str]:
    """Return the fields of Payer for which `limits` states a maximum."""
    return {field for field, most in limits.per if most is not None}


def limits_of(limits: Limits) -> Iterator[tuple[str, int]]:
    """Yield (`total` or a field of Payer, maximum) for each stated limit."""
    if limits.total is not None:
        yield "total", limits.total
    for of, most in limits.per:
        if most is not None:
            yield of, most


def ordered(queue: str, request: Request, expected: Expected = (None, None)) -> list[Ordered]:
    """Return `request.count` entries, each with a position in the queue order."""
    since = request.pending_since.timestamp() if request.pending_since else inf
    is_number = request.id.isdecimal() and len(request.id) <= _MAX_ID_DIGITS
    number = int(request.id) if is_number else 0
    key, first = f"{queue}/{request.id}", request.pending_since
    priority, own = -request.priority, request.id
    seconds, timing = expected
    ids = [key] if request.count == 1 else [f"{key}#{n}" for n in range(1, request.count + 1)]
    return [
        Ordered((priority, since, queue, number, own, nth), each, seconds, first, timing)
        for nth, each in enumerate(ids, 1)
    ]


_NO_TAGS: frozenset[str] = frozenset()


class Drops:
    """Finder of the required tags that a request may waive after a long wait (`otherwise`)."""

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
        """Return True if any tag in fleet.yaml has `otherwise`."""
        return bool(self._after)

    def of(self, required: Iterable[str], since: datetime | None) -> frozenset[str]:
        """Return the tags that a request waiting since `since` may waive now."""
        if since is None:
            return _NO_TAGS
        return self.within(required, (self._now - since).total_seconds())

    def within(self, required: Iterable[str], seconds: float) -> frozenset[str]:
        """Return the tags that a request may waive after a wait of `seconds`."""
        return frozenset(tag for tag, _, after in self.delays(required) if seconds >= after)

    def delays(self, required: Iterable[str]) -> Iterator[tuple[str, str, int]]:
        """Yield (tag, key in fleet.yaml, seconds until waived) per tag with `otherwise`."""
        for tag in required:
            for name in self._vocabulary.names_of(tag):
                if name in self._after:
                    yield tag, name, self._after[name]


class _Eligibility:
    """Matcher of signatures of one queue to workers and pools, with cached results."""

    def __init__(self, supplies: Mapping[str, Supply], queue: str) -> None:
        self._supplies = {key: s for key, s in supplies.items() if queue in s.queues}
        self._matcher = Matcher({key: s.offer for key, s in self._supplies.items()})
        self._on_demand = frozenset[str]().union(*(s.offer.on_demand for s in supplies.values()))
        self._known: dict[object, _Choices] = {}
        self._kept: dict[frozenset[str], list[frozenset[str]]] = {}

    def to_serve(self, kind: _SignatureKey) -> "_Choices":
        """Return the workers that fit a signature, and the pools that may create a machine."""
        asks = self._possible_asks(kind) if not kind.held else ()
        each = tuple((self._matcher.fitting(ask), ask.required & self._on_demand) for ask in asks)
        if each not in self._known:
            # The ask with all tags comes last, so that it overwrites the asks with fewer tags.
            called = {key: tags for fitting, tags in each for key in fitting}
            # Workers are reserved if they are on demand, but only for tags not requested here.
            last = frozenset(
                key
                for key, asked in called.items()
                if (on_demand := self._supplies[key].offer.on_demand) and not on_demand & asked
            )
            pools = (key for key in sorted(called) if key == self._supplies[key].pool)
            able = tuple(key for key in pools if key not in last)
            self._known[each] = _Choices(tuple(sorted(called)), able, last)
        choices = self._known[each]
        if not kind.dropped:
            return choices
        offers = {key: self._supplies[key].offer.provides for key in choices.fitting_supplies}
        without = ((key, tag) for key in offers for tag in sorted(kind.dropped - offers[key]))
        return choices._replace(without=tuple(without))

    def _possible_asks(self, kind: _SignatureKey) -> list[Ask]:
        """Return the requirements per set of waivable tags that workers offer, fewest first."""
        ask, dropped = kind.ask, kind.dropped
        if dropped not in self._kept:
            found = {
                _NO_TAGS,
                *(dropped & supply.offer.provides for supply in self._supplies.values()),
            }
            self._kept[dropped] = sorted(found, key=lambda tags: (len(tags), sorted(tags)))
        least = ask.required - dropped
        return [ask._replace(required=least | tags) for tags in self._kept[dropped]]


class _Choices(NamedTuple):
    """Workers that fit, pools that may create a fitting machine, and workers to use last.

    `without` has (supply, tag) pairs for missing tags that the request waives.
    """

    fitting_supplies: tuple[str, ...]
    creating_pools: tuple[str, ...]
    reserved_supplies: frozenset[str]
    without: tuple[tuple[str, str], ...] = ()


def _sign(
    kind: _SignatureKey, requests: list[list[Ordered]], choices: _Choices, ruled: Iterable[Ruled]
) -> EqualRequests:
    identity: list[object] = [kind.queue, required_of(kind.ask), sorted(kind.ask.provided)]
    identity += [kind.priority]
    identity += [kind.payer.identity] if any(kind.payer) else []
    identity += [sorted(kind.dropped)] if kind.dropped else []
    identity += [kind.timing.identity] if kind.timing and kind.timing.identity else []
    if kind.refused or kind.differences:
        identity.append([refusal.identity for refusal in kind.refused])
        identity.append([difference.identity for difference in kind.differences])
    # The members of a request stay adjacent and in order.
    in_order = sorted(requests, key=itemgetter(0))
    known = vars(kind) | {"payer": kind.payer._replace(without=choices.without)}
    return EqualRequests(
        **known,
        id=digest(identity)[:12],
        requests=tuple(chain.from_iterable(in_order)),
        fitting_supplies=choices.fitting_supplies,
        creating_pools=choices.creating_pools,
        reserved_supplies=choices.reserved_supplies,
        ruled=tuple(sorted(ruled)),
    )


def required_of(ask: Ask) -> list[str]:
    """Return the sorted required tags and minimums (`name>=64`) of a request."""
    return sorted((*ask.required, *write_minimums(ask.minimums)))


Path = tuple[str | int, ...]
Rank = tuple[int, ...]
"""A class of requests that is served before all larger ranks.

The parts are the priority of the tags, the negated priority in the queue, and the waiting time on
a logarithmic scale.
"""


class Fit(NamedTuple):
    """The capacity, cost and time that one request of a group uses at a place."""

    share: float = 1.0
    """Used fraction of a machine, in (0, 1]; 1 if a machine serves only one request."""
    money: Decimal = Decimal(0)
    """Cost in addition to `Place.setup`; 0 if the machine is paid for anyway."""
    seconds: int | None = 0
    """Average expected duration at the place; None if unknown."""
    longest: int | None = 0
    """Expected duration of the group's longest request; None if unknown."""
    priority: int = 0
    """Preference of the pool for the requested tags (`pools.NAME.priorities`)."""


@dataclass(frozen=True)
class RequestGroup:
    """Waiting requests that fit the same places and count to the same limits."""

    id: str
    rank: Rank
    requests: tuple[Ordered, ...]
    """The requests in service order."""
    fits: Mapping[str, Fit]
    """Place to the use of one request; only fitting places are keys."""
    payer: Payer = field(default_factory=Payer)
    last: frozenset[str] = frozenset()
    """Places with machines on demand for other tags; the group uses these places last."""
    tags: frozenset[str] = frozenset()
    """The required tags that some limit or budget uses."""
    by_priority: bool = False
    """True: minimise by pool priority before cost; False: priorities only break ties."""
    varied: bool = False
    """`fits` has averages, because the use differs by request."""
    coarse: bool = False
    """Only the average duration was rounded up to billing increments, not each duration."""

    def is_averaged(self, places: Mapping[str, "Place"], *, is_left: bool) -> bool:
        """Return True if the averages in `fits` may make the computed cost inexact.

        `is_left` is True if some requests of the group are unserved.
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
    """Idle workers with equal offers, or new machines of one type and market (spot or not)."""

    key: str
    pool: str
    makes: bool
    """True: the place creates machines; False: it has existing workers."""
    room: float = 0.0
    """Capacity of existing workers in machines, possibly fractional; unused for new machines."""
    type: str = ""
    market: Market = "on-demand"
    setup: Decimal = Decimal(0)
    """Fixed cost of one additional machine: boot, and idle time until its deletion."""
    setup_seconds: int = 0
    """Fixed seconds of one additional machine: boot, and idle time until its deletion."""
    price: Decimal = Decimal(0)
    """Price per machine hour, including address and disk."""
    kinds: tuple[MachineKind, ...] = ()
    """Type, cores and speed of each kind of machine, if durations depend on the kind."""
    tariff: Tariff | None = None
    """Billing of a new machine; None for existing workers, or if the price is unknown."""
    units: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the existing workers; empty for new machines."""

    @property
    def step(self) -> Decimal:
        """Return the price of one billing increment; 0 if the machine is billed by the second."""
        if self.tariff is None or self.tariff.increment == 1:
            return Decimal(0)
        return self.tariff.price * self.tariff.increment / 3600

    @property
    def unused(self) -> Decimal:
        """Return the cost of the billed time that boot and idle time do not use."""
        return self.setup - self.price * self.setup_seconds / 3600 if self.step else Decimal(0)

    def costs(self, *, timed: bool) -> tuple[object, ...]:
        """Return the fields that determine a request's cost, with machine kinds if `timed`."""
        return self.makes, self.tariff, self.setup_seconds, self.price, timed and self.kinds

    def billed(self, seconds: int) -> Decimal | None:
        """Return the bill of a new machine for `seconds` of work; None without a tariff."""
        return bill(self.tariff, self.setup_seconds + seconds) if self.tariff else None


@dataclass(frozen=True, eq=False)
class LimitRow:
    """A limit as a linear constraint: machines and requests use at most `room`."""

    path: Path
    because: str
    """The limit and its figure in words; add `pool` as the subject if set (`sentence`)."""
    room: Decimal
    machines: Mapping[str, Decimal] = field(default_factory=dict)
    """Place to coefficient of a machine created for requests."""
    requests: Mapping[tuple[str, str], Decimal] = field(default_factory=dict)
    """(Group, place) to coefficient of one served request."""
    kept: Mapping[str, Decimal] = field(default_factory=dict)
    """Place to coefficient of a machine created for min or spare."""
    when: str = ""
    """For a budget: the period in words, as in `BudgetVerdict.when`."""
    until: datetime | None = None
    """For a budget: the end of the period."""
    unit: str = "machines or requests"
    """Unit of `room`; for a budget the currency or machine hours."""
    limit: Decimal | None = None
    """For a budget: its amount."""
    over: Decimal | None = Decimal(0)
    """Used amount above the limit; None if the use is unknown (a higher limit would not help)."""
    code: NoMachineReason = NoMachineReason.BUDGET
    pool: str = ""
    """The pool that the limit restricts; empty for a limit of several pools."""

    @property
    def sentence(self) -> str:
        """Return the limit and its figure as a sentence: `pool arm is at workers.max (3)`."""
        return add_pool(self.pool, self.because)

    def is_below(self, need: Decimal) -> bool:
        """Return whether the whole budget is below the need of one request."""
        return self.limit is not None and need > self.limit

    @cached_property
    def least(self) -> Mapping[str, Decimal]:
        """Map each place to the smallest coefficient of any request there."""
        found: dict[str, Decimal] = {}
        for (_, place), amount in self.requests.items():
            found[place] = min(amount, found.get(place, amount))
        return found


Usage = tuple[tuple[int, Decimal], ...]
"""(Number of a limit, amount that one request uses of the limit)."""


class Constraints:
    """Limits, indexed by the places whose machines or requests they count."""

    def __init__(self, rows: Sequence[LimitRow]) -> None:
        self.rows = rows
        self.making: defaultdict[str, list[int]] = defaultdict(list)
        """Place to the numbers of the limits that count its machines."""
        self._counting: defaultdict[str, list[int]] = defaultdict(list)
        """Place to the numbers of the limits that count some request at the place."""
        for number, row in enumerate(rows):
            for place in row.machines:
                self.making[place].append(number)
            for place in {place for _, place in row.requests}:
                self._counting[place].append(number)

    def usage(self, group: str, place: str) -> Usage:
        """Return the usage of limits by one request of a group at a place."""
        at, rows = (group, place), self.rows
        numbers = self._counting.get(place, ())
        return tuple([(n, rows[n].requests[at]) for n in numbers if at in rows[n].requests])

    def needs(self, place: str, usage: Usage, machines: int) -> dict[int, Decimal]:
        """Map limit to the amount that `usage` and new machines of a place use."""
        found = dict(usage)
        for n in self.making.get(place, ()) if machines else ():
            found[n] = found.get(n, Decimal(0)) + machines * self.rows[n].machines[place]
        return found

    def used(
        self, machines: Mapping[str, int], counts: Mapping[tuple[str, str], int]
    ) -> list[Decimal]:
        """Return the used amount per limit.

        `machines` maps place to machines, and `counts` maps (group, place) to served requests.
        """
        found = [Decimal(0) for _ in self.rows]
        for place, count in machines.items():
            for n, amount in self.needs(place, (), count).items():
                found[n] += amount
        for at, count in counts.items():
            for n, amount in self.usage(*at):
                found[n] += amount * count
        return found

    def left(
        self, machines: Mapping[str, int], counts: Mapping[tuple[str, str], int]
    ) -> list[Decimal]:
        """Return the unused amount per limit. The arguments are those of `used`."""
        used = self.used(machines, counts)
        return [row.room - amount for row, amount in zip(self.rows, used, strict=True)]
