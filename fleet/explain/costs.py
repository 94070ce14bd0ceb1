"""The places where builds could run with start, end and cost, and the costs of builds in a plan.

A place is a new machine of one pool, type and market. `explain`, the status pages and the merge
request report all use `OptionFinder.options_for`, so that they show equal costs. The cost is the
bill of the machine until its deletion: boot, work, idle time-out and the runs that delete it, in
whole billing increments. The place of a waiting build is the machine that the plan creates for it,
or else the cheapest one that fits and finishes the build in time.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import chain, islice, product
from typing import Any, NamedTuple

from pydantic import Field

from fleet.checks.limits import BudgetNeed
from fleet.explain.edits import write_value
from fleet.model.facts import (
    Demand,
    Ledger,
    Listing,
    PlaceFacts,
    Request,
    Worker,
    WorkerFacts,
    World,
    market_of,
)
from fleet.model.plan import Create, Plan, Unserved, WorkerVerdict, overlaps
from fleet.model.pool_limits import boot_of, size_of
from fleet.model.prices import find_types, markets_of, tariff_of_machine
from fleet.model.values import Bill, ForPeople, Value, later
from fleet.planner.begin import begin_pool_plans
from fleet.planner.budgets import spending_limits
from fleet.planner.costs import Way, build_at, new_place
from fleet.planner.demand import Drops, judge_of
from fleet.planner.durations import Durations, Expected, kind_at
from fleet.planner.fitting import FitDecider, FitRequirements
from fleet.planner.forecast import registered_workers
from fleet.planner.inventory import take_inventory
from fleet.planner.ledger import cost_of_span, periods
from fleet.planner.machine_inputs import Closure
from fleet.planner.step import move_time
from fleet.reconcile import reconcile
from fleet.schema.findings import Path
from fleet.schema.model import DebusineQueue, Fleet, PowerfulRule
from fleet.tagrules.derive import NOTHING, QueueContext, context_of
from fleet.tagrules.export import provided_by_rules
from fleet.tagrules.names import PARTS, names_of, package_of
from fleet.tagrules.requests import Judge
from fleet.tagrules.vocabulary import Vocabulary

Options = tuple[PlaceFacts, ...]
"""The machine options of a build: those that fit now, then those that need a new rule."""


class OptionFinder:
    """Finder of the machine options (pool, type, market) of builds, cached for equal builds."""

    def __init__(self, fleet: Fleet, world: World) -> None:
        self._fleet = fleet
        self._world = world
        self._durations = Durations(fleet, world)
        self._decider = FitDecider(fleet, world)
        self._pools = fleet.dynamic_pools
        self._drops = Drops(fleet, world.time)
        self._vocabulary = Vocabulary(fleet)
        self._known: dict[object, Options] = {}

    def options_for(self, queue: str, request: Request, *, also: Iterable[str] = ()) -> Options:
        """Return the machine options of a build, sorted by pool, then in fleet.yaml order.

        With `also`, return the options of a later build for which rules add these tags.
        """
        told = context = self._contexts.get(queue, NOTHING)
        if tags := [tag for tag in also if self._is_rule_tag(tag)]:
            request, context = (
                self._add_rule_tags(queue, request, tags),
                replace(told, stored=False),
            )
        asking = self._judge.ask_of_alike(request, context)
        if asking.held:
            return ()
        dropped = frozenset[str]()
        if not told.stored:
            dropped = self._drops.of(asking.ask.required, request.pending_since)
        expected = self._durations.of(queue, request)
        key = queue, id(asking), dropped, expected  # the judge caches `asking`: its id is stable
        if key not in self._known:
            asked = FitRequirements(queue, asking.ask, dropped)
            names = [name for name in self._decider.offers if name in self._pools]
            fits = (name for name in names if self._decider.find_unasked(asked, name) == ())
            self._known[key] = tuple(
                each for name in fits for each in self._places(name, expected)
            )
        return self._known[key] + self._places_by_rule(queue, request, context, expected)

    def _places_by_rule(
        self, queue: str, request: Request, context: QueueContext, expected: Expected
    ) -> Options:
        """Return the machine options of a build that need an additional allow-list rule."""
        names = names_of(request)
        if not names or expected[0] is None:
            return ()
        later = replace(context, stored=False) if context.stored else context
        asking = self._judge.ask_of_alike(request, later)
        key = queue, id(asking), names[0], request.task, expected
        if key not in self._known:
            opened = self._find_places_by_rule(queue, request, later, expected)
            self._known[key] = tuple(each.altered(acts_later=context.stored) for each in opened)
        return self._known[key]

    def _find_places_by_rule(
        self, queue: str, request: Request, context: QueueContext, expected: Expected
    ) -> Iterator[PlaceFacts]:
        ask = self._judge.ask_of_alike(request, context).ask
        for name, pool in sorted(self._pools.items()):
            if pool.mode != "apply" or not size_of(pool).max:
                continue  # a rule alone does not open this pool
            # At Debusine, an allow-list rule also adds the provided tags that its pools require.
            provided = self._decider.offers[name].requires
            asked = FitRequirements(queue, ask._replace(provided=provided))
            tags = self._decider.find_unasked(asked, name)
            if not tags or not all(map(self._is_rule_tag, tags)):
                continue
            asking = self._judge.ask_of_alike(self._add_rule_tags(queue, request, tags), context)
            if (
                asking.held
                or self._decider.find_unasked(FitRequirements(queue, asking.ask), name) != ()
            ):
                continue  # another effect of these tags blocks the build
            rule = write_value(self._fleet, ("powerful", 0), rule_for(request, tags))
            for place in self._places(name, expected):
                yield place.altered(asks=tags, rule=rule)

    def _places(self, name: str, expected: Expected) -> Iterator[PlaceFacts]:
        """Yield a machine option for each machine type and market of a pool."""
        fleet, world, (_, timing) = self._fleet, self._world, expected
        pool = self._pools[name]
        on_demand = bool(self._decider.offers[name].on_demand)
        for known, market in product(find_types(fleet, pool), markets_of(pool)):
            way = Way(name, known.name, market)
            place = new_place(fleet, world, way, on_demand=on_demand)
            closed = self._closures.get(way)
            until = closed.until if closed else None
            start = boot_of(pool).ready_at(max(world.time, until or world.time))
            build = build_at(place, expected)
            seconds = build.seconds
            yield PlaceFacts(
                pool=name,
                type=known.name,
                market=market,
                start=start,
                end=None if seconds is None else start + timedelta(seconds=seconds),
                seconds=seconds,
                cost=build.cost,
                source=build.source,
                deadline=timing.deadline if timing else None,
                own_deadline=bool(timing and timing.own_deadline),
                is_late=build.is_late,
                closed=closed.reason if closed else "",
                closed_until=until,
            )

    def _add_rule_tags(self, queue: str, request: Request, tags: Iterable[str]) -> Request:
        """Return a copy of the request to which allow-list rules have added these tags."""
        given = set(tags)
        asked = {tag: by for tag, by in request.asked.items() if tag not in given}
        provided = request.provided
        if isinstance(self._fleet.queues.get(queue), DebusineQueue):
            provided = tuple(sorted({*provided, *provided_by_rules(self._fleet, given)}))
        required = tuple(sorted({*request.required, *given}))
        return request.altered(required=required, asked=asked, provided=provided)

    def _is_rule_tag(self, tag: str) -> bool:
        """Return whether an allow-list rule may require a tag for a build."""
        allowed, _ = self._vocabulary.asked_by(tag)
        return allowed is None or "rules" in allowed

    @cached_property
    def _closures(self) -> dict[Way, Closure]:
        """Map each machine option that this run cannot create to the reason."""
        fleet, world = self._fleet, self._world
        pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
        return {
            Way(name, option.type, option.market): closed
            for name, pool_plan in pool_plans.items()
            for option in pool_plan.options
            if (closed := option.closed or pool_plan.closed)
        }

    @cached_property
    def _judge(self) -> Judge:
        has_needs = any(self._decider.offers[name].requires for name in self._pools)
        return judge_of(self._fleet, self._world, with_provided=has_needs)

    @cached_property
    def _contexts(self) -> dict[str, QueueContext]:
        return {
            queue: context_of(self._fleet, queue, demand)
            for queue, demand in self._world.demands()
        }


def cheapest(options: Options) -> PlaceFacts | None:
    """Return the cheapest place where the build ends in time; None if no such place has a cost."""
    known = [each for each in options if each.cost is not None and is_possible(each)]
    return min(known, key=lambda each: (each.cost, each.pool, each.type), default=None)


def is_possible(place: PlaceFacts) -> bool:
    """Return whether a machine option needs no additional rule and ends the build in time."""
    return not place.asks and not place.is_late


def way_to(place: PlaceFacts) -> Way:
    """Return the pool, machine type and market of a machine option."""
    return Way(place.pool, place.type, place.market)


def way_of(create: Create) -> Way:
    """Return the pool, machine type and market of a machine that a plan creates."""
    return Way(create.pool, create.inputs.type, market_of(create.inputs))


def mark_chosen(options: Options, ways: Collection[Way]) -> Options:
    """Return the machine options, with a mark on those that a plan creates."""
    if not ways:
        return options
    return tuple(
        each.altered(is_chosen=True) if way_to(each) in ways else each for each in options
    )


def rule_for(request: Request, tags: Iterable[str]) -> PowerfulRule:
    """Return an allow-list rule that adds these tags to builds of this name and task."""
    # Only at Debusine may several tasks share a name.
    task = {"task": request.task} if request.scope is not None and request.task else {}
    # Escape only the operators of RE2, so that the name stays readable.
    match = re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", names_of(request)[0])
    return PowerfulRule.model_validate({"match": match, "ask": list(tags)} | task)


def request_of(worker: Worker) -> Request | None:
    """Return the request that a worker runs; None if the worker runs no known request."""
    work = worker.work
    if work is None or not worker.running:
        return None
    # The name of a request joins these fields with slashes.
    parts = next((name.split("/") for name in work.names if name.count("/") == PARTS - 1), None)
    fields = dict(zip(("owner", "project", "chroot", "package"), parts or (), strict=False))
    named = {"owner": work.owner, "package": work.package} | fields
    return Request(
        id=worker.running,
        task=work.task,
        required=work.required,
        expected_seconds=work.expected_seconds,
        requester=work.requester,
        scope=work.scope,
        workspace=work.workspace,
        **named,
    )


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
            default = cheapest(options) or next(filter(is_possible, options), None)
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
        unplaced=sum(each.counts[None] for each in placed),
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
    for each in (*head.above_budget, *head.plan.unserved):
        lasting = (by for by in each.blocked if by.is_lasting(zero))
        # A limit that stops them also without the change is no effect of it.
        ours = (by for by in each.blocked if any(overlaps(by.path, key) for key in edited))
        first = next(chain(lasting, ours, each.blocked), each)
        is_edited = any(overlaps(path, key) for path in each.paths for key in edited)
        cause = first.because, first.path, each.is_lasting(zero)
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


class PowerfulBuild(NamedTuple):
    """A build that runs on a powerful machine, with its times and cost."""

    worker: WorkerVerdict
    package: str | None
    since: datetime | None
    ends: datetime | None
    """The expected end of the build; None if unknown."""
    cost: Decimal | None
    """The cost of the build so far; None if unknown."""
    expected: Decimal | None
    """The expected total cost of the build; None if unknown."""
    elsewhere: PlaceFacts | None
    """Cheapest other machine without allow-list tags; None if too late or not comparable."""


def powerful_builds(
    fleet: Fleet, world: World, plan: Plan, known: Mapping[str, WorkerFacts]
) -> tuple[PowerfulBuild, ...]:
    """Return the builds that run on powerful machines, with the highest cost so far first."""
    if not fleet.powerful:
        return ()
    found, given = [], {tag for rule in fleet.powerful for tag in rule.ask}
    workers, durations = registered_workers(fleet, world), Durations(fleet, world)
    finder = OptionFinder(fleet.model_copy(update={"powerful": []}), world)
    for verdict in plan.workers:
        worker, facts = workers.get(verdict.worker), known.get(verdict.worker)
        work = worker.work if worker and verdict.running else None
        if worker is None or work is None or given.isdisjoint(work.required):
            continue
        kind = kind_at(fleet, verdict.pool, verdict.type)
        left = durations.remaining(worker, world.time, kind)
        ends = None if left is None else world.time + timedelta(seconds=left)
        span = (work.started_at, ends) if work.started_at and ends else None
        expected = None
        if verdict.type and facts and facts.provider and facts.created_at and span:
            market = facts.market or "on-demand"
            tariff = tariff_of_machine(fleet, verdict.pool, facts.provider, verdict.type, market)
            if tariff is not None:
                expected = cost_of_span(fleet, tariff, facts.created_at, span, work=True)
        elsewhere = None
        if request := request_of(worker):
            kept = tuple(tag for tag in request.required if tag not in given)
            options = finder.options_for(verdict.registry or "", request.altered(required=kept))
            elsewhere = cheapest(tuple(each for each in options if each.pool != verdict.pool))
        cost, since = facts.work_cost if facts else None, work.started_at
        found.append(PowerfulBuild(verdict, work.package, since, ends, cost, expected, elsewhere))
    return tuple(sorted(found, key=lambda each: (-(each.cost or 0), each.worker.worker)))
