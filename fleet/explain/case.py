"""A run of `fleet apply`: its world and plan, and the values that several explanations use."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from math import inf
from typing import NamedTuple

from fleet.explain.options import OptionFinder, way_of
from fleet.explain.turns import LimitTurn, find_turns
from fleet.explain.values import GivenRule, Responsible
from fleet.model.facts import Demand, Request, Worker, World
from fleet.model.plan import Create, Plan, Signature, Unserved, WorkerVerdict
from fleet.planner.costs import Way
from fleet.planner.demand import Drops, ordered
from fleet.planner.durations import USUAL
from fleet.planner.fitting import FitDecider, FitRequirements, asked_by
from fleet.planner.forecast import Class, Forecast, forecast, list_postponed, registered_workers
from fleet.planner.images import ImageChoice, choose_images
from fleet.planner.inventory import PoolInventory, take_inventory
from fleet.planner.shortfall import Shortfalls
from fleet.planner.units import UnitState
from fleet.schema.model import Fleet, WorldQueue
from fleet.tagrules.allow import AllowList
from fleet.tagrules.names import names_of, package_of
from fleet.tagrules.sources import Claim, Enforcement, Enforcer, enforcement_of, weakest
from fleet.tagrules.vocabulary import tag_name


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
    def _allowed(self) -> AllowList | None:
        return AllowList(self.fleet, self.world.time.date()) if self.fleet.powerful else None

    def rules_of(self, request: Request) -> tuple[GivenRule, ...]:
        """Return the allow-list rules that apply to a request, in the order of fleet.yaml."""
        matches = self._allowed.rules_for(request) if self._allowed else ()
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
