"""The cost of waiting builds according to a plan, and their places without and with a change.

The place of a build is the machine that the plan creates for it, or else the cheapest one that
fits and finishes the build in time. All places come from `fleet.explain.options`.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from itertools import chain, islice
from typing import Any, NamedTuple

from pydantic import Field

from fleet.checks.limits import BudgetNeed
from fleet.explain.options import (
    OptionFinder,
    Options,
    default_place,
    is_possible,
    mark_chosen,
    way_of,
    way_to,
)
from fleet.model.facts import Demand, Ledger, Listing, PlaceFacts, Request, World
from fleet.model.plan import Create, Plan, Unserved, overlaps
from fleet.model.values import Bill, ForPeople, Value, later
from fleet.planner.budgets import spending_limits
from fleet.planner.costs import Way
from fleet.planner.ledger import periods
from fleet.planner.step import move_time
from fleet.reconcile import reconcile
from fleet.schema.findings import Path
from fleet.schema.model import Fleet
from fleet.tagrules.names import names_of, package_of

MOST_COMPARED = 200
"""Maximum number of builds in a comparison. A report shows fewer builds."""
_MAX_PLACES = 20
"""Maximum number of machine options per build. Those of 400 pools would fill a megabyte."""
_ZERO = Decimal(0)


class Placement(NamedTuple):
    """The machine options (pool, type, market) that equal builds would use, and the cost."""

    counts: Counter[Way | None]
    """Machine option to number of builds; key None counts builds that no option ends in time."""
    cost: Decimal | None
    """Total cost of the builds that have a machine option; None if unknown."""
    fits: frozenset[tuple[Way, Decimal | None]]
    """(Machine option, cost of one build) for each option that ends the builds in time."""
    is_planned: bool
    """True if the plan creates a machine for any of the builds."""
    seconds: int | None
    """Duration of the longest build that has a machine option; None if unknown."""

    def moves_to(self, other: "Placement") -> bool:
        """Return whether builds would run on another machine or at another cost."""
        if (self.counts, self.cost) == (other.counts, other.cost):
            return False
        both_planned = self.is_planned and other.is_planned
        return both_planned or self.fits != other.fits

    @property
    def unplaced(self) -> int:
        """Return the number of builds that no machine option finishes in time."""
        return self.counts[None]


class BuildCosts:
    """Calculator of the machine options and costs of builds according to a plan."""

    def __init__(self, fleet: Fleet, world: World, plan: Plan) -> None:
        self._finder = OptionFinder(fleet, world)
        self._planned = ways_of_requests(plan)
        self.plan = plan
        self.above_budget = find_above_budget(fleet, world)

    def options_for(self, queue: str, request: Request) -> Options:
        """Return the machine options of a build. Options that the plan creates are marked."""
        options = self._finder.options_for(queue, request)
        return mark_chosen(options, self._planned.get(f"{queue}/{request.id}", ()))

    def placement_of(self, queue: str, request: Request, *, also: Iterable[str] = ()) -> Placement:
        """Return the machine options of a build, or of later builds that also require `also`."""
        options = self._finder.options_for(queue, request, also=also)
        places = {way_to(each): each for each in options if not each.asks}
        planned = self._planned.get(f"{queue}/{request.id}", Counter())
        counts = Counter[Way | None]({w: n for w, n in planned.items() if w in places})
        if left := request.count - counts.total():
            default = default_place(options)
            counts[way_to(default) if default else None] += left
        used = [(places[way], count) for way, count in counts.items() if way is not None]
        return Placement(
            counts,
            _sum([place.cost and place.cost * count for place, count in used]),
            fits=frozenset((way_to(each), each.cost) for each in options if is_possible(each)),
            is_planned=bool(planned),
            seconds=_find_longest([place.seconds for place, _ in used]),
        )


def _sum(amounts: Collection[Decimal | None]) -> Decimal | None:
    """Return the sum of amounts; None if one is unknown."""
    return None if None in amounts else sum(filter(None, amounts), _ZERO)


def _find_longest(seconds: Collection[int | None]) -> int | None:
    """Return the longest of durations; None if one is unknown."""
    return None if None in seconds else max(filter(None, seconds), default=0)


def ways_of_requests(plan: Plan) -> dict[str, Counter[Way]]:
    """Map each request or group of requests to the number of new machines per machine option."""
    found: defaultdict[str, Counter[Way]] = defaultdict(Counter)
    for action in plan.actions:
        if isinstance(action, Create):
            for key in action.serves:
                found[key.rpartition("#")[0] or key][way_of(action)] += 1
    return dict(found)


class ComparedBuild(Value):
    """Waiting builds with equal name, task and cost, and their machines before and after."""

    name: str = Field(description="Name that the allow-list matches; else the package or the id.")
    task: str = ""
    queue: str
    count: int
    is_moved: bool = Field(description="The change sends them to other places.")
    before: tuple[PlaceFacts, ...] = Field(description="Their places without the change.")
    after: tuple[PlaceFacts, ...] = Field(description="Their places with it.")
    cost_before: Bill | None = Field(None, description="Total cost before; None: unknown.")
    cost_after: Bill | None = Field(None, description="Total cost after; None: unknown.")


class BuildsCost(Value):
    """The total cost of builds on the machines that would run the builds."""

    cost: Bill | None = Field(_ZERO, description="Cost of placed builds; None: unknown.")
    unplaced: int = Field(0, description="Number of builds without a place in time.")
    seconds: int | None = later(0, "Duration of the longest placed build; None: unknown.")


def sum_placements(placed: Collection[Placement]) -> BuildsCost:
    """Return the total cost of builds."""
    return BuildsCost(
        cost=_sum([each.cost for each in placed]),
        unplaced=sum(each.unplaced for each in placed),
        seconds=_find_longest([each.seconds for each in placed]),
    )


class StoppedBuilds(Value):
    """Waiting builds that get no machine with a change, for one cause."""

    count: int
    because: ForPeople
    path: Path = Field((), description="The key of fleet.yaml that decides.")
    is_lasting: bool = Field(description="They get no machine before fleet.yaml changes.")


class MovedBuilds(Value):
    """The waiting builds that a change moves to other machine types or pools."""

    count: int = 0
    before: BuildsCost = Field(BuildsCost(), description="Without the change.")
    after: BuildsCost = Field(BuildsCost(), description="With it.")


class BuildComparison(NamedTuple):
    """The waiting builds, with their machines and costs without and with a change."""

    moved: MovedBuilds
    stopped: tuple[StoppedBuilds, ...]
    """The most builds first."""
    builds: tuple[ComparedBuild, ...]
    """Moved builds, then the most expensive builds, at most `MOST_COMPARED` entries."""


def compare_builds(
    world: World,
    base: BuildCosts,
    head: BuildCosts,
    edited: Collection[Path],
    lost: Collection[str],
) -> BuildComparison:
    """Compare the machines and costs of all waiting builds without and with a change.

    `edited` has the keys that the change edits, `lost` the requests that lose a worker.
    """
    moved: dict[str, tuple[Request, Placement, Placement]] = {}
    # Builds with an equal key count together. The key is in the order of the comparison.
    found: defaultdict[tuple[Any, ...], list[Request]] = defaultdict(list)
    for queue, demand in world.demands():
        for request in demand.requests:
            places = base.placement_of(queue, request), head.placement_of(queue, request)
            if is_moved := places[0].moves_to(places[1]):
                moved[f"{queue}/{request.id}"] = request, *places
            name = next(iter(names_of(request)), "") or package_of(request) or request.id
            costs = tuple(each.cost and each.cost / request.count for each in places)
            most = max(cost or _ZERO for cost in costs)
            key = (not is_moved, -most, queue, name, request.task, tuple(map(str, costs)))
            found[key].append(request)
    builds = (_compare_build(key, found[key], base, head) for key in sorted(found))
    timed = (b for b in builds if any(p.seconds is not None for p in (*b.before, *b.after)))
    return BuildComparison(
        MovedBuilds(
            count=sum(request.count for request, _, _ in moved.values()),
            before=sum_placements([place for _, place, _ in moved.values()]),
            after=sum_placements([place for _, _, place in moved.values()]),
        ),
        tuple(_find_stopped(base, head, moved, edited, lost)),
        tuple(islice(timed, MOST_COMPARED)),
    )


def _compare_build(
    key: tuple[Any, ...], requests: list[Request], base: BuildCosts, head: BuildCosts
) -> ComparedBuild:
    is_still, _, queue, name, task, _ = key
    count = sum(request.count for request in requests)
    first = requests[0]
    costs = [each.placement_of(queue, first).cost for each in (base, head)]
    before, after = (cost and cost / first.count * count for cost in costs)
    return ComparedBuild(
        name=name,
        task=task,
        queue=queue,
        count=count,
        is_moved=not is_still,
        before=base.options_for(queue, first)[:_MAX_PLACES],
        after=head.options_for(queue, first)[:_MAX_PLACES],
        cost_before=before,
        cost_after=after,
    )


def _find_stopped(
    base: BuildCosts,
    head: BuildCosts,
    moved: Collection[str],
    edited: Collection[Path],
    lost: Collection[str],
) -> Iterator[StoppedBuilds]:
    """Yield the builds that a change stops: moved builds, or builds whose cause it edits.

    A cause that is the same without the change counts only if it lasts until fleet.yaml changes.
    """
    unserved = (*base.plan.unserved, *base.above_budget)
    before = {key: each.cause for each in unserved for key in each.requests}
    zero = head.plan.zero_pools
    seen: set[str] = set()
    counts = Counter[tuple[str, Path, bool]]()
    causes: dict[tuple[int, int], tuple[bool, tuple[str, Path, bool]]] = {}
    for each in (*head.above_budget, *head.plan.unserved):
        alike = id(each.blocked), id(each.decisions)  # many requests share these tuples
        if alike not in causes:
            is_lasting = each.is_lasting(zero)
            lasting = (by for by in each.blocked if by.is_lasting(zero))
            # A limit that stops them also without the change is no effect of it.
            ours = (by for by in each.blocked if any(overlaps(by.path, key) for key in edited))
            first = next(chain(lasting, ours, each.blocked), each)
            is_edited = any(overlaps(path, key) for path in each.paths for key in edited)
            causes[alike] = is_edited, (first.because, first.path, is_lasting)
        is_edited, cause = causes[alike]
        keys = set(each.requests) - seen
        seen |= keys
        counts[cause] += sum(
            (cause[-1] or before.get(key) != each.cause)
            and (is_edited or key in lost or (key.rpartition("#")[0] or key) in moved)
            for key in keys
        )
    for (because, path, is_lasting), count in (+counts).most_common():
        yield StoppedBuilds(count=count, because=because, path=path, is_lasting=is_lasting)


def find_above_budget(fleet: Fleet, world: World) -> tuple[Unserved, ...]:
    """Return the waiting requests of which each needs more than a whole budget.

    They are planned at the start of a month, without machines and spending: a build that fits what
    is left of a period may be above a whole one.
    """
    if not spending_limits(fleet):
        return ()
    start = periods(fleet, world.time)[-1].end
    queues, by = {}, start - world.time
    for name, reading in move_time(world, start).queues.items():
        demand, workers = reading.demand, reading.workers
        if isinstance(demand, Demand):
            since = ((r, r.pending_since and r.pending_since + by) for r in demand.requests)
            demand = demand.altered(requests=tuple(r.altered(pending_since=at) for r, at in since))
        if isinstance(workers, tuple):
            workers = tuple(each for each in workers if each.static)
        queues[name] = reading.altered(demand=demand, workers=workers)
    fresh = World(
        fleet=world.fleet,
        time=start,
        queues=queues,
        providers={name: Listing(read_at=start, machines=()) for name in fleet.providers},
        ledger=Ledger(charged_until=start),
        images=world.images,
        members=world.members,
        prices=world.prices,
    )
    unserved = reconcile(fleet, fresh).unserved
    return tuple(each for each in unserved if any(by.is_above_budget for by in each.blocked))


def find_budget_needs(fleet: Fleet, world: World) -> dict[Path, BudgetNeed]:
    """Return the limits of budgets that are below one waiting build, and their builds."""
    found: defaultdict[int, list[Unserved]] = defaultdict(list)
    for each in find_above_budget(fleet, world):
        found[id(each.blocked)].append(each)  # many requests share this tuple
    needs: dict[Path, BudgetNeed] = {}
    for alike in found.values():
        count = sum(each.count for each in alike)
        for by in {b.path: b for b in alike[0].blocked if b.is_above_budget}.values():
            old = needs.get(by.path, BudgetNeed(0, _ZERO, by.unit))
            most = max(by.needed or _ZERO, old.needed)
            needs[by.path] = old._replace(builds=old.builds + count, needed=most)
    return needs
