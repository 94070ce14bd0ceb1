"""This module asks what would be: the same decision about an edited fleet.yaml or world."""

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from fleet.explain.edits import Edit, apply_edits
from fleet.explain.forecast import Forecast, forecast
from fleet.explain.later import next_run
from fleet.facts import Demand, Request, World
from fleet.guard import guard
from fleet.plan import Plan, Signature
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet

REQUEST = ("request",)
"""The path of an edit of the request itself: the tags it would also ask for."""

MOST_REPLANS = 400
FEWEST_REPLANS = 12
MOST_TOLD = 4
_REQUESTS_FOR_EACH = 1_000
"""A queue that is longer is planned again less often, in proportion."""


def is_served(plan: Plan, key: str) -> bool:
    """Say whether a plan counts a worker, existing or made now, for a request."""
    return any(key in s.by_worker or key in s.by_create for s in plan.signatures)


def served_by(signature: Signature) -> tuple[str, ...]:
    """Return the requests of a signature that a worker, existing or made now, is counted for."""
    return (*signature.by_worker, *signature.by_create)


def signature_of(plan: Plan, key: str) -> Signature | None:
    """Return the signature that a waiting request belongs to; None when it does not wait."""
    return next((each for each in plan.signatures if key in each.requests), None)


def find_request(world: World, key: str) -> tuple[Request, bool] | None:
    """Return the request of this name, `queue/id`, and whether its queue stored its tags."""
    queue, _, name = key.partition("/")
    reading = world.queues.get(queue)
    if reading is None or not isinstance(reading.demand, Demand):
        return None
    whole = name.rpartition("#")[0]
    found = {r.id: r for r in reading.demand.requests if r.id in (name, whole)}
    request = found.get(name) or found.get(whole)
    return (request, reading.demand.stored) if request else None


def edited(fleet: Fleet, world: World, key: str, edits: Iterable[Edit]) -> tuple[Fleet, World]:
    """Return fleet and world as these edits make them; an edit may be of the request itself."""
    every = tuple(edits)
    for edit in every:
        if edit.path == REQUEST and isinstance(edit.new, tuple):
            world = _asking(world, key, edit.new)
    return apply_edits(fleet, (e for e in every if e.path != REQUEST)), world


def _asking(world: World, key: str, tags: tuple[str, ...]) -> World:
    """Return the world in which a request also asks for these tags, as its user."""
    found = find_request(world, key)
    queue = key.partition("/")[0]
    if found is None:
        return world
    reading = world.queues[queue]
    if not isinstance(reading.demand, Demand):
        return world
    asking = found[0].model_copy(
        update={
            "required": tuple(sorted({*found[0].required, *tags})),
            "asked": {**found[0].asked, **dict.fromkeys(tags, "user")},
        }
    )
    requests = tuple(asking if r.id == asking.id else r for r in reading.demand.requests)
    demand = reading.demand.model_copy(update={"requests": requests})
    queues = {**world.queues, queue: reading.model_copy(update={"demand": demand})}
    return world.model_copy(update={"queues": queues})


@dataclass(frozen=True)
class Run:
    """A run of fleet apply: what it sees and does; number 0 is the one that is explained."""

    fleet: Fleet
    world: World
    plan: Plan
    number: int = 0
    of: Hashable = ()
    """What tells its runs from those of another fleet.yaml."""

    @cached_property
    def forecast(self) -> Forecast:
        """Return when each request is expected to start if nothing follows this run."""
        return forecast(self.fleet, self.world, self.plan)


class Replans:
    """Plans again, so often at most, and tells so many edits: an answer is worth so much work.

    A counterfactual that says what it is (`of`) is planned once, for whichever request.
    """

    def __init__(self, world: World, most: int = MOST_REPLANS) -> None:
        waiting = sum(
            len(r.demand.requests) for r in world.queues.values() if isinstance(r.demand, Demand)
        )
        self.left = max(FEWEST_REPLANS, min(most, most * _REQUESTS_FOR_EACH // (1 + waiting)))
        self.tells = MOST_TOLD
        self._known: dict[Hashable, Plan] = {}
        self._runs: dict[Hashable, Run] = {}
        self.is_spent = False
        """A search ended before it had planned everything that it asked for."""

    @contextmanager
    def share(self, most: int, *, tells: int = MOST_TOLD) -> Iterator["Replans"]:
        """Give away a part: it plans again so often at most, and knows what was planned."""
        shared = copy(self)
        given = shared.left = max(0, min(self.left, most))
        shared.tells, shared.is_spent = tells, False
        yield shared
        self.left -= given - shared.left

    def plan(self, fleet: Fleet, world: World, *, of: Hashable = None) -> Plan | None:
        """Return what would be done; None when enough was planned."""
        if of is not None and of in self._known:
            return self._known[of]
        if self.left <= 0:
            self.is_spent = True
            return None
        self.left -= 1
        plan = guard(fleet, reconcile(fleet, world))
        if of is not None:
            self._known[of] = plan
        return plan

    def run_after(self, run: Run) -> Run | None:
        """Return the run that follows, the machines of this one up; None when enough was planned.

        It is planned once, for whichever request.
        """
        name = (run.number + 1, run.of)
        if name not in self._runs:
            world = next_run(run.fleet, run.world, run.plan)
            plan = self.plan(run.fleet, world)
            if plan is None:
                return None
            self._runs[name] = Run(run.fleet, world, plan, *name)
        return self._runs[name]

    def serves(self, fleet: Fleet, world: World, key: str, *, of: Hashable = None) -> bool:
        """Say whether a request would be served; False too when enough was planned."""
        plan = self.plan(fleet, world, of=of)
        return plan is not None and is_served(plan, key)
