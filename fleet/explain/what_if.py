"""Plan again for an edited fleet.yaml or a later time, with a limit on the number of plans."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from fleet.explain.edits import REQUEST, Edit, apply_edits
from fleet.explain.turns import LimitTurn, find_stopped, find_turns
from fleet.guard import guard
from fleet.model.facts import Demand, Request, World
from fleet.model.plan import Plan, Signature, Unserved
from fleet.model.price_lists import with_price_lists
from fleet.planner.durations import USUAL
from fleet.planner.fitting import FitDecider
from fleet.planner.forecast import Forecast, forecast, next_pause
from fleet.planner.shortfall import Shortfalls
from fleet.planner.step import apply_plan
from fleet.reconcile import reconcile_unsealed
from fleet.schema.model import Fleet

MOST_PLANS = 10
"""Maximum number of trial plans for one request, over all suggestions and combinations."""
MOST_SHOWN = 4
_WORK = 200
"""Maximum work of all plans for one request: 1 plan with 140 requests in a limited fleet of 10
pools. `fleet explain request` then takes at most 1.5 times as long as `fleet plan`."""
_REQUESTS_EACH = 8
"""Number of waiting requests that take as long to plan as one blocked (requests, pool) pair."""


def is_served(plan: Plan, key: str) -> bool:
    """Return whether a plan assigns an existing or new worker to a request."""
    return any(key in s.by_worker or key in s.by_create for s in plan.signatures)


def served_by(signature: Signature) -> tuple[str, ...]:
    """Return the requests of a group that have an existing or new worker."""
    return (*signature.by_worker, *signature.by_create)


def edited(fleet: Fleet, world: World, key: str, edits: Iterable[Edit]) -> tuple[Fleet, World]:
    """Return the fleet and world after edits. Edits of REQUEST add tags to the request `key`."""
    every = tuple(edits)
    for edit in every:
        if edit.path == REQUEST and isinstance(edit.new, tuple):
            world = _require_tags(world, key, edit.new)
    return apply_edits(fleet, (e for e in every if e.path != REQUEST)), world


def _require_tags(world: World, key: str, tags: tuple[str, ...]) -> World:
    """Return a copy of the world in which the user of a request also requires these tags."""
    queue, _, name = key.partition("/")
    demand = dict(world.demands()).get(queue)
    if demand is None:
        return world
    own = name if any(r.id == name for r in demand.requests) else name.rpartition("#")[0]
    requests = tuple(
        request.altered(
            required=tuple(sorted({*request.required, *tags})),
            asked={**request.asked, **dict.fromkeys(tags, "user")},
        )
        if request.id == own
        else request
        for request in demand.requests
    )
    reading = world.queues[queue].altered(demand=demand.altered(requests=requests))
    return world.altered(queues={**world.queues, queue: reading})


@dataclass(frozen=True)
class PlannedRun:
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

    @cached_property
    def unserved(self) -> dict[str, Unserved]:
        """Map each unserved request to its entry in the plan."""
        return {key: each for each in self.plan.unserved for key in each.requests}

    @cached_property
    def decider(self) -> FitDecider:
        """Return the object that decides whether a pool fits a request."""
        return FitDecider(self.fleet, self.world)

    @cached_property
    def shortfalls(self) -> Shortfalls:
        """Return the object that calculates by how much limits must rise."""
        return Shortfalls(self.fleet, self.world, self.plan)

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """Map each waiting request to its group of requests that fleet.yaml treats equally."""
        return {key: each for each in self.plan.signatures for key in each.requests}

    def find(self, key: str) -> tuple[Request, Demand] | None:
        """Return the request with this key and its demand. For `queue/id#n`, return the group."""
        return self.requests.get(key) or self.requests.get(key.rpartition("#")[0])

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
        is_any = bool(find_stopped(self.plan))
        return find_turns(self.plan, self.shortfalls.uses, self.forecast) if is_any else {}

    @cached_property
    def assumed_turns(self) -> dict[str, LimitTurn]:
        """Return the turns that use the usual duration if a duration is unknown."""
        is_any = bool(self.turns)
        uses = self.shortfalls.uses if is_any else ()
        return find_turns(self.plan, uses, self.assumed, USUAL) if is_any else {}

    def expected_start(self, key: str) -> datetime | None:
        """Return the start of a request if no later run changes anything; None if unknown."""
        return self.forecast.start_of(key) or self._turn_start(self.turns, key)

    def assumed_start(self, key: str) -> datetime | None:
        """Return a start by assumed durations; None unless only durations are unknown."""
        known = self.assumed.start_of(key) if key in self.forecast.untimed else None
        return known or self._turn_start(self.assumed_turns, key)

    def _turn_start(self, turns: Mapping[str, LimitTurn], key: str) -> datetime | None:
        turn = turns.get(key)
        if turn is None or not turn.is_alone or turn.first is None or turn.first.end is None:
            return None
        return self.world.time + timedelta(seconds=turn.first.end)


def count_plans(plan: Plan) -> int:
    """Return the maximum number of trial plans for the explanation of one request."""
    pairs = sum(len(unserved.blocked) for unserved in plan.unserved)
    waiting = sum(signature.count for signature in plan.signatures)
    return max(1, min(MOST_PLANS, _WORK // (1 + pairs + waiting // _REQUESTS_EACH)))


class Replans:
    """Planner of edited fleets and later worlds, with a limit on the number of trial plans.

    A plan with a cache key (`of`) is made once and shared by all requests.
    """

    def __init__(self, most: int = MOST_PLANS) -> None:
        self.left = most
        """Number of trial plans that may still be made."""
        self.most_shown = MOST_SHOWN
        self._known: dict[Hashable, Plan] = {}
        self._runs: dict[Hashable, PlannedRun] = {}
        self.is_spent = False
        """True if a search stopped because no trial plan was left."""

    @contextmanager
    def share(self, most: int, *, most_shown: int = MOST_SHOWN) -> Iterator["Replans"]:
        """Yield a planner with a part of the remaining trial plans and the same cache."""
        shared = copy(self)
        given = shared.left = max(0, min(self.left, most))
        shared.most_shown, shared.is_spent = most_shown, False
        yield shared
        self.left -= given - shared.left

    def plan(self, fleet: Fleet, world: World, *, of: Hashable = None) -> Plan | None:
        """Return the plan for a fleet and world, possibly cached; None at the limit of plans."""
        if of is not None and of in self._known:
            return self._known[of]
        if self.left <= 0:
            self.is_spent = True
            return None
        self.left -= 1
        plan = guard(fleet, reconcile_unsealed(with_price_lists(fleet, world), world))
        if of is not None:
            self._known[of] = plan
        return plan

    def run_after(self, run: PlannedRun) -> PlannedRun | None:
        """Return the next run, after this run's machines have booted; None if no plan is left."""
        name = (run.number + 1, run.of)
        if name not in self._runs:
            if self.left <= 0:
                self.is_spent = True
                return None
            # Queues have not yet assigned the requests of the new workers.
            then = run.world.time + next_pause(run.fleet)
            world = apply_plan(run.fleet, run.world, run.plan, then)
            plan = self.plan(run.fleet, world)
            if plan is None:
                return None
            self._runs[name] = PlannedRun(run.fleet, world, plan, *name)
        return self._runs[name]
