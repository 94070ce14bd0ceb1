"""This module asks what would be: the same decision about an edited fleet.yaml or world."""

from collections.abc import Iterable

from fleet.edits import Edit, apply_edits
from fleet.facts import Demand, Request, World
from fleet.guard import guard
from fleet.plan import Plan, Signature
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet

REQUEST = ("request",)
"""The path of an edit of the request itself: the tags it would also ask for."""

MOST_REPLANS = 400
FEWEST_REPLANS = 12
_REQUESTS_IN_ALL = 400_000
"""How many requests may be planned again while one answer is looked for."""


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


class Replans:
    """Plans again, so often at most: an answer is worth only so much work."""

    def __init__(self, world: World, most: int = MOST_REPLANS) -> None:
        waiting = sum(
            len(r.demand.requests) for r in world.queues.values() if isinstance(r.demand, Demand)
        )
        self.left = max(FEWEST_REPLANS, min(MOST_REPLANS, _REQUESTS_IN_ALL // (1 + waiting)))
        self.left = min(most, self.left)

    @property
    def is_spent(self) -> bool:
        """Say whether nothing may be planned again any more."""
        return self.left <= 0

    def give_up(self) -> None:
        """Plan nothing more: the search was ended before it found anything."""
        self.left = 0

    def plan(self, fleet: Fleet, world: World) -> Plan | None:
        """Return what would be done; None when enough was planned."""
        if self.is_spent:
            return None
        self.left -= 1
        return guard(fleet, reconcile(fleet, world))

    def serves(self, fleet: Fleet, world: World, key: str) -> bool:
        """Say whether a request would be served; False too when enough was planned."""
        plan = self.plan(fleet, world)
        return plan is not None and is_served(plan, key)
