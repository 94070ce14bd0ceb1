"""The places where a build could run, each with start, end and cost.

A place is a new machine of one pool, type and market. `explain`, the status pages and the merge
request report all use `OptionFinder.options_for`, so that they show equal costs. The cost is the
bill of the machine until its deletion: boot, work, idle time-out and the runs that delete it, in
whole billing increments.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from itertools import product

from fleet.explain.edits import write_value
from fleet.model.facts import PlaceFacts, Request, Worker, World, market_of
from fleet.model.plan import Create
from fleet.model.pool_limits import boot_of, size_of
from fleet.model.prices import find_types, markets_of
from fleet.planner.begin import begin_pool_plans
from fleet.planner.costs import Way, build_at, new_place
from fleet.planner.demand import Drops, judge_of
from fleet.planner.durations import Durations, Expected
from fleet.planner.fitting import FitDecider, FitRequirements
from fleet.planner.inventory import take_inventory
from fleet.planner.machine_inputs import Closure
from fleet.schema.model import DebusineQueue, Fleet, PowerfulRule
from fleet.tagrules.derive import NOTHING, QueueContext, context_of
from fleet.tagrules.export import provided_by_rules
from fleet.tagrules.names import PARTS, names_of
from fleet.tagrules.offers import Ask
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
            self._known[key] = tuple(self._fitting_places(queue, asking.ask, dropped, expected))
        return self._known[key] + self._places_by_rule(queue, request, context, expected)

    def _fitting_places(
        self, queue: str, ask: Ask, dropped: frozenset[str], expected: Expected
    ) -> Iterator[PlaceFacts]:
        asked = FitRequirements(queue, ask, dropped)
        for name in self._decider.offers:
            if name in self._pools and self._decider.find_unasked(asked, name) == ():
                yield from self._places(name, expected)

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


def default_place(options: Options) -> PlaceFacts | None:
    """Return the cheapest machine option, else the first in time; None if no option is in time."""
    return cheapest(options) or next(filter(is_possible, options), None)


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
