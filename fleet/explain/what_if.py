"""Plan again for an edited fleet.yaml or a later time, with a limit on the number of plans."""

from collections.abc import Callable, Hashable

from fleet.explain.case import Case
from fleet.explain.edits import REQUEST, Edits, apply_edits
from fleet.guard import guard
from fleet.model.facts import World
from fleet.model.plan import Plan, Signature
from fleet.model.price_lists import with_price_lists
from fleet.planner.forecast import next_pause
from fleet.planner.step import apply_plan
from fleet.reconcile import reconcile_unsealed
from fleet.schema.model import Fleet

MOST_PLANS = 10
"""Maximum number of trial plans for one request, over all suggestions and combinations."""
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


def edited(fleet: Fleet, world: World, key: str, edits: Edits) -> tuple[Fleet, World]:
    """Return the fleet and world after edits. Edits of REQUEST add tags to the request `key`."""
    for edit in edits:
        if edit.path == REQUEST and isinstance(edit.new, tuple):
            world = _require_tags(world, key, edit.new)
    return apply_edits(fleet, (e for e in edits if e.path != REQUEST)), world


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


def count_plans(plan: Plan) -> int:
    """Return the maximum number of trial plans for the explanation of one request."""
    pairs = sum(len(unserved.blocked) for unserved in plan.unserved)
    waiting = sum(signature.count for signature in plan.signatures)
    return max(1, min(MOST_PLANS, _WORK // (1 + pairs + waiting // _REQUESTS_EACH)))


class Replans:
    """Planner of edited fleets and later worlds, with a limit on the number of trial plans.

    All requests share the plans.
    """

    def __init__(self, most: int = MOST_PLANS) -> None:
        self.total = most
        """Number of trial plans that may still be made for all requests."""
        self.left = most
        """Number of trial plans that may still be made for this request."""
        self.is_spent = False
        """True if a search for this request stopped because no trial plan was left."""
        self._runs: dict[Hashable, Case] = {}

    def begin(self, most: int) -> None:
        """Begin the search for the next request, which may make at most this many plans."""
        self.left, self.is_spent = min(self.total, most), False

    def run(
        self, of: Hashable, change: Callable[[], tuple[Fleet, World]], number: int = 0
    ) -> Case | None:
        """Return a run by its cache key, planned once; None if no trial plan is left."""
        if (number, of) not in self._runs:
            if self.left <= 0:
                self.is_spent = True
                return None
            self.left -= 1
            self.total -= 1
            fleet, world = change()
            plan = guard(fleet, reconcile_unsealed(with_price_lists(fleet, world), world))
            self._runs[number, of] = Case(fleet, world, plan, number, of)
        return self._runs[number, of]

    def run_edited(self, case: Case, key: str, edits: Edits) -> Case | None:
        """Return the run after edits; None if no trial plan is left."""
        is_own = any(edit.path == REQUEST for edit in edits)
        of = key if is_own else "", frozenset((edit.path, repr(edit.new)) for edit in edits)
        return self.run(of, lambda: edited(case.fleet, case.world, key, edits))

    def run_after(self, run: Case) -> Case | None:
        """Return the next run, after this run's machines have booted; None if no plan is left."""
        then = run.world.time + next_pause(run.fleet)
        # Queues have not yet assigned the requests of the new workers.
        return self.run(
            run.of,
            lambda: (run.fleet, apply_plan(run.fleet, run.world, run.plan, then)),
            run.number + 1,
        )
