"""A run of `fleet apply`: its world and plan, and the values that several explanations use.

A turn is the start of a request that limits on tags or queues stop. In service order, a request
takes the place of the work that counts to its limits and ends first. Work of other users, which
does not count to the limit, is no reason to wait.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain
from math import inf
from typing import NamedTuple

from fleet.explain.costs import OptionFinder, way_of
from fleet.explain.values import GivenRule, Responsible
from fleet.model.decisions import NoMachineReason
from fleet.model.facts import Demand, Request, Worker, World
from fleet.model.plan import Create, Plan, Signature, Unserved, WorkerVerdict
from fleet.planner.costs import Way
from fleet.planner.demand import Drops, Ordered, ordered
from fleet.planner.durations import USUAL
from fleet.planner.fitting import FitDecider, FitRequirements, asked_by
from fleet.planner.forecast import Class, Forecast, forecast, list_postponed, registered_workers
from fleet.planner.images import ImageChoice, choose_images
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.limits import Use
from fleet.planner.shortfall import Shortfalls
from fleet.planner.units import UnitState
from fleet.schema.model import Fleet, WorldQueue
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import names_of, package_of
from fleet.tagrules.sources import Claim, Enforcement, Enforcer, enforcement_of, weakest
from fleet.tagrules.vocabulary import tag_name

_COUNTED = frozenset({NoMachineReason.TAG_LIMIT, NoMachineReason.QUEUE_LIMIT})
"""Reasons to wait that end when counted work ends."""
ENDING = frozenset({*_COUNTED, NoMachineReason.AT_MAX, NoMachineReason.AT_MAX_STARTING})
"""Reasons to wait that end when the worker of counted work is free."""


class CountedWork(NamedTuple):
    """Work that counts to a limit, with its end."""

    end: int | None
    """Seconds from now; None if unknown."""
    worker: str
    work: str
    """A waiting request as `queue/id`, or the id of running work; empty if unknown."""
    is_running: bool = False


_UNUSED = CountedWork(0, "", "")
"""The part of a limit that no work uses."""


class LimitTurn(NamedTuple):
    """The limit that stops a request, and the work that has to end before its start."""

    use: Use
    works: tuple[CountedWork, ...]
    """The work that counts to the limit now."""
    first: CountedWork | None = None
    """The work in whose place the request starts; None if its end is unknown."""
    end: int | None = None
    """The end of the request in seconds from now; None if unknown."""
    is_alone: bool = True
    """False if something else also stops the request, such as a budget or another pool."""

    @property
    def counted(self) -> list[CountedWork]:
        """Return the work that counts, without work of unknown payers if the limit has a payer."""
        if self.use.limit.of == "total":
            return [*self.works]
        return [*self.works[: len(self.use.workers[0])], *self.works[self.use.taken :]]

    @property
    def is_later(self) -> bool:
        """Return True if only work of unknown payers counts now, and the payer's build is next."""
        is_total = self.use.limit.of == "total"
        return not (is_total or self.first is None or self.first in self.works or self.counted)


def _find_stopped(plan: Plan) -> dict[str, datetime | None]:
    """Map each request that a limit stops to the time from which nothing else stops it.

    None if that time is unknown.
    """
    found: dict[str, datetime | None] = {}
    for unserved in plan.unserved:
        pools = {p for d in unserved.decisions if d.code in _COUNTED for p in d.subject}
        if not pools:
            continue
        others = [d.figures.until for d in unserved.decisions if d.code not in ENDING]
        ends = [until for until in others if until is not None]
        is_known = len(ends) == len(others) and pools == {each.pool for each in unserved.blocked}
        found |= dict.fromkeys(unserved.requests, max([plan.time, *ends]) if is_known else None)
    return found


class _LimitLine:
    """The work that counts to one limit of one payer, and the known ends."""

    def __init__(self, use: Use, works: Iterable[CountedWork]) -> None:
        self.use, self.works = use, tuple(works)
        ends = sorted(each for each in self.works if each.end is not None)
        unused = use.limit.most - len(self.works)
        needed = min(unused, sum(len(group.requests) for group in use.groups))
        # More work may count than the limit permits.
        self.ends = [*[_UNUSED] * needed, *ends[max(0, -unused) :]]

    @property
    def is_full(self) -> bool:
        return not self.ends or bool(self.ends[0].worker)


def find_turns(
    plan: Plan, list_uses: Callable[[], Iterable[Use]], found: Forecast, assumed: int | None = None
) -> dict[str, LimitTurn]:
    """Return the turn of each request that limits stop, in service order.

    Work of unknown duration takes `assumed` seconds; if None, its end is unknown.
    """
    stopped = {key: at for key, at in _find_stopped(plan).items() if key not in found.starts}
    requests: dict[str, tuple[Ordered, list[_LimitLine]]] = {}
    for line in _list_lines(plan, list_uses() if stopped else (), found):
        for each in (each for group in line.use.groups for each in group.requests):
            if each.key in stopped:
                requests.setdefault(each.key, (each, []))[1].append(line)
    turns = {}
    for request, lines in sorted(requests.values(), key=lambda each: each[0].order):
        if not any(line.is_full for line in lines):
            continue
        moment = stopped[request.key]
        if not all(line.ends for line in lines):
            line = next(line for line in lines if not line.ends)
            turns[request.key] = LimitTurn(line.use, line.works, is_alone=moment == plan.time)
            continue
        first, last = max((heappop(line.ends), number) for number, line in enumerate(lines))
        standing, start = found.standing.get(first.worker), first.end or 0
        seconds = request.seconds_on(standing.alike[2]) if standing else request.seconds
        seconds = assumed if seconds is None else seconds
        end = None if seconds is None else start + seconds
        is_alone = moment is not None and moment <= plan.time + timedelta(seconds=start)
        turns[request.key] = LimitTurn(lines[last].use, lines[last].works, first, end, is_alone)
        for line in lines if end is not None else ():
            heappush(line.ends, CountedWork(end, first.worker, request.key))
    return turns


def _list_lines(plan: Plan, uses: Iterable[Use], found: Forecast) -> Iterator[_LimitLine]:
    """Yield each use of a limit with the work that counts: running, then served requests."""
    ways = (way for s in plan.signatures for way in (s.by_worker, s.by_create))
    served = {key: worker for way in ways for key, worker in way.items()}
    served |= {key: each.worker for each in list_postponed(plan) for key in each.serves}
    running = {each.worker: each.running or "" for each in plan.workers}
    for use in uses:
        works = []
        for name in chain(*use.workers):
            worker = found.standing.get(name)
            end = worker.free_in if worker and worker.works else None
            works.append(CountedWork(end, name, running.get(name, ""), is_running=True))
        keys = (each.key for group in use.groups for each in group.requests)
        works += [CountedWork(found.ends.get(k), served[k], k) for k in keys if k in served]
        yield _LimitLine(use, works)


class PlaceInLine(NamedTuple):
    """The numbers of requests that are served before another one."""

    ahead: int
    higher: int
    """Those of higher priority among them."""
    pools: tuple[str, ...]
    """The pools that all of them wait for."""


@dataclass(frozen=True)
class Case:
    """A run of `fleet apply`, with its world and plan. Runs count from 0, the explained run."""

    fleet: Fleet
    world: World
    plan: Plan
    number: int = 0
    of: Hashable = ()
    """Cache key that distinguishes runs with different fleet.yaml."""

    @cached_property
    def requests(self) -> dict[str, tuple[Request, Demand]]:
        """Map `queue/id` to each waiting request and the demand of its queue."""
        return {
            f"{queue}/{request.id}": (request, demand)
            for queue, demand in self.world.demands()
            for request in demand.requests
        }

    def find(self, key: str) -> tuple[Request, Demand] | None:
        """Return the request with this key and its demand. For `queue/id#n`, return the group."""
        return self.requests.get(key) or self.requests.get(key.rpartition("#")[0])

    def named(self, name: str) -> list[str]:
        """Return the request with this id, or else all requests of the package with this name."""
        names_by: tuple[Callable[[str], Collection[str]], ...] = (
            lambda key: (key,),
            lambda key: (key.partition("/")[2],),
            lambda key: [key[:-2], key[:-2].partition("/")[2]] if key.endswith("#1") else (),
            lambda key: (
                (package_of(found[0]), *names_of(found[0])) if (found := self.find(key)) else ()
            ),
        )
        keys = [key for signature in self.plan.signatures for key in signature.requests]
        meant = ([key for key in keys if name in names(key)] for names in names_by)
        return next(filter(None, meant), []) if name else []

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """Map each waiting request to its group of requests that fleet.yaml treats equally."""
        return {key: each for each in self.plan.signatures for key in each.requests}

    @cached_property
    def unserved(self) -> dict[str, Unserved]:
        """Map each unserved request to its entry in the plan."""
        return {key: each for each in self.plan.unserved for key in each.requests}

    @cached_property
    def served(self) -> dict[str, str]:
        """Map each waiting request that has an existing or new worker to this worker."""
        ways = (way for s in self.plan.signatures for way in (s.by_worker, s.by_create))
        return {key: worker for way in ways for key, worker in way.items()}

    @cached_property
    def hopeless(self) -> dict[int, bool]:
        """Map the identity of entries of `plan.unserved` to whether no worker can ever fit."""
        return {}

    @cached_property
    def line(self) -> dict[str, PlaceInLine]:
        """Map each request without a machine to its place among those that are served first.

        Requests that fit none of its pools do not count. A request that gets no machine before
        fleet.yaml changes is not in the line, unless it may later waive a tag (`otherwise`).
        """
        zero = self.plan.zero_pools
        requests = sorted(
            each
            for queue, demand in self.world.demands()
            for request in demand.requests
            for each in ordered(queue, request)
            if each.key in self.unserved and each.key in self.signatures
        )
        found: dict[str, PlaceInLine] = {}
        counts: Counter[tuple[tuple[str, ...], int]] = Counter()
        for each in requests:
            own, is_lasting = self.signatures[each.key], self.unserved[each.key].is_lasting(zero)
            pools = self._pools_later(own, zero) if is_lasting else own.pools
            if pools:
                rivals = [each for each in counts if not set(pools).isdisjoint(each[0])]
                higher = sum(counts[each] for each in rivals if each[1] > own.priority)
                ahead = sum(counts[each] for each in rivals)
                found[each.key] = PlaceInLine(ahead, higher, pools)
            # Until it may waive the tag, the request goes before no other one.
            counts[own.pools, own.priority] += not is_lasting
        return found

    def _pools_later(self, signature: Signature, zero: Collection[str]) -> tuple[str, ...]:
        """Return the pools that fit only once a request has waived all tags that it may waive."""
        asked, now = self.asks_later(signature), asked_by(self.fleet, signature)
        names = sorted(self.fleet.pools.keys() - zero) if asked != now else ()
        return tuple(name for name in names if self.decider.fits(asked, name))

    def asks_later(self, signature: Signature) -> FitRequirements:
        """Return the requirements of requests after they waived all tags that they may waive."""
        asked, demand = asked_by(self.fleet, signature), self.world.queues[signature.queue].demand
        if not isinstance(demand, Demand) or demand.stored:
            return asked
        return asked._replace(dropped=asked.dropped | self.drops.within(signature.required, inf))

    @cached_property
    def drops(self) -> Drops:
        """Return the finder of the tags that requests may waive (`otherwise`)."""
        return Drops(self.fleet, self.world.time)

    @cached_property
    def choices(self) -> dict[str, ImageChoice]:
        """Map each pool to the choice of its image version."""
        return choose_images(self.fleet, self.world)

    @cached_property
    def decider(self) -> FitDecider:
        """Return the object that decides whether a pool fits a request."""
        return FitDecider(self.fleet, self.world)

    @cached_property
    def shortfalls(self) -> Shortfalls:
        """Return the object that calculates by how much limits must rise."""
        return Shortfalls(self.fleet, self.world, self.plan)

    @cached_property
    def options(self) -> OptionFinder:
        """Return the object that finds the machines that could run a request."""
        return OptionFinder(self.fleet, self.world)

    @cached_property
    def _allow_list(self) -> AllowList | None:
        return AllowList(self.fleet, self.world.time.date()) if self.fleet.powerful else None

    def rules_of(self, request: Request) -> tuple[GivenRule, ...]:
        """Return the allow-list rules that apply to a request, in the order of fleet.yaml."""
        matches = self._allow_list.rules_for(request) if self._allow_list else ()
        return tuple(
            GivenRule(
                path=("powerful", index),
                match=rule.match,
                ask=tuple(rule.ask),
                reason=rule.reason or "",
                contact=rule.contact or "",
            )
            for index, rule in {match.index: match.rule for match in matches}.items()
        )

    @property
    def responsible(self) -> Responsible:
        """Return the contact of the fleet, and the rules that apply to its waiting requests."""
        rules = {}
        for signature in self.plan.signatures if self.fleet.powerful else ():
            requests = (found[0] for key in signature.requests if (found := self.find(key)))
            given = {rule.path: rule for each in requests for rule in self.rules_of(each)}
            rules[signature.id] = tuple(given[path] for path in sorted(given))
        return Responsible(self.fleet.contact or "", rules)

    @cached_property
    def forecast(self) -> Forecast:
        """Return the expected start of each request if no later run changes anything."""
        return forecast(self.fleet, self.world, self.plan)

    @cached_property
    def assumed(self) -> Forecast:
        """Return the forecast that uses the usual duration if a duration is unknown."""
        return forecast(self.fleet, self.world, self.plan, assumed=USUAL)

    @cached_property
    def turns(self) -> dict[str, LimitTurn]:
        """Return the turn of each request that limits on tags or queues stop."""
        return find_turns(self.plan, lambda: self.shortfalls.uses, self.forecast)

    @cached_property
    def assumed_turns(self) -> dict[str, LimitTurn]:
        """Return the turns that use the usual duration if a duration is unknown."""
        if not self.turns:
            return {}
        return find_turns(self.plan, lambda: self.shortfalls.uses, self.assumed, USUAL)

    def expected_start(self, key: str) -> datetime | None:
        """Return the start of a request if no later run changes anything; None if unknown."""
        return self.forecast.start_of(key) or self._turn_start(self.turns.get(key))

    def assumed_start(self, key: str) -> datetime | None:
        """Return a start by assumed durations; None unless only durations are unknown."""
        known = self.assumed.start_of(key) if key in self.forecast.untimed else None
        return known or self._turn_start(self.assumed_turns.get(key))

    def likely_start(self, key: str) -> datetime | None:
        """Return the expected start of a request, else the start by assumed durations."""
        return self.expected_start(key) or self.assumed_start(key)

    def _turn_start(self, turn: LimitTurn | None) -> datetime | None:
        if turn is None or not turn.is_alone or turn.first is None or turn.first.end is None:
            return None
        return self.world.time + timedelta(seconds=turn.first.end)

    @cached_property
    def postponed(self) -> list[Create]:
        """Return the machines for requests that a throttle postpones to later runs."""
        return list_postponed(self.plan)

    @cached_property
    def verdicts(self) -> dict[str, WorkerVerdict]:
        """Map the name of each worker to the plan's decision about it."""
        return {each.worker: each for each in self.plan.workers}

    @cached_property
    def workers(self) -> dict[str, Worker]:
        """Map the name of each registered worker to the worker."""
        return registered_workers(self.fleet, self.world)

    @cached_property
    def classes(self) -> frozenset[Class]:
        """Return the classes of interchangeable workers."""
        return frozenset(worker.alike for worker in self.forecast.standing.values())

    @cached_property
    def inhabited(self) -> frozenset[str]:
        """Return the pools that have machines, or for which the next apply creates some."""
        return frozenset(each.pool for each in self.plan.pools if each.machines or each.create)

    @cached_property
    def created(self) -> dict[str, Way]:
        """Map each worker that the plan creates to the pool, type and market of its machine."""
        return {
            each.worker: way_of(each) for each in self.plan.actions if isinstance(each, Create)
        }

    @cached_property
    def inventory(self) -> dict[str, PoolInventory]:
        """Map each pool to its machines, and to the reasons why machines are unknown."""
        return take_inventory(self.fleet, self.world)

    @cached_property
    def seen(self) -> frozenset[str]:
        """Return the workers that a provider or queue lists, not those that only a stack has."""
        unseen = {unit.name for pool in self.inventory.values() for unit in pool.unseen}
        return frozenset(each.worker for each in self.plan.workers) - unseen

    @cached_property
    def uncreated(self) -> frozenset[str]:
        """Return the workers whose creation `fleet apply` has started but that have no machine."""
        return frozenset(
            unit.name
            for pool in self.inventory.values()
            for unit in pool.having(UnitState.UNFINISHED)
            if unit.machine is None
        )

    @cached_property
    def enforcement(self) -> tuple[Enforcement, ...]:
        """Return the enforcer of each tag, exclusivity and limit."""
        return enforcement_of(self.fleet)

    def enforcer(self, tags: Iterable[str], claim: Claim, queue: str) -> Enforcer | None:
        """Return the weakest enforcer of a claim about these tags; None for a recorded queue."""
        if isinstance(self.fleet.queues.get(queue), WorldQueue):
            # A recording assigns no work, so it does not enforce tags.
            return None
        names = {tag_name(tag) for tag in tags}
        found = [
            each.by
            for each in self.enforcement
            if each.tag in names and each.claim == claim and each.queue == queue
        ]
        # The queue itself enforces tags that fleet.yaml neither declares nor provides.
        return weakest(found) or "scheduler"
