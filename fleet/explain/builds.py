"""The builds in recorded observations, and how allow-list rules match them.

A build counts once, with its latest request. A build that starts and ends between two observations
is not recorded, so counts are lower bounds. Monthly figures count the builds after the first
observation and need at least one day.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from pydantic import Field

from fleet.explain.costs import BuildCosts, OptionFinder, cheapest, request_of, sum_placements
from fleet.explain.edits import FleetEdits
from fleet.model.facts import Demand, Listing, PlaceFacts, Request, Unknown, Worker, World
from fleet.model.price_lists import with_price_lists
from fleet.model.values import Bill, Moment, Rate, Value, later
from fleet.schema.model import Fleet, PowerfulRule
from fleet.tagrules.allow import AllowList, read_pattern, takes_all_of
from fleet.tagrules.names import describe_nameless, names_of, tasks_by_name, without_directory
from fleet.words.answers import SHORT_RECORD

MONTH = timedelta(hours=730)
_MIN_SPAN = timedelta(days=1)
"""Minimum length of a recording whose figures can be scaled to a month."""


@dataclass
class RecordedBuild:
    """A build that waits or runs in one or more observations."""

    queue: str
    request: Request
    """The waiting request, else the fields of the running work. `count` is 1 after the wait."""
    names: tuple[str, ...]
    since: datetime
    """Start of its wait, else the time of the first observation that contains the build."""
    started: datetime | None = None
    seconds: int | None = None
    """Duration of its work; None if no observation contains the work or follows its end."""
    is_withdrawn: bool = False
    """The build disappeared, and was too long to have run between two observations."""


@dataclass
class Recording:
    """The builds and times of recorded observations, the oldest first."""

    since: datetime
    last: World
    moments: int = 0
    unread: int = 0
    """Number of observations in which a queue could not be read."""
    builds: dict[tuple[str, str], RecordedBuild] = field(default_factory=dict)
    """(Queue, id) to build."""
    used: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """(Name, task) of builds to the time of the last observation that contains such a build."""
    _present: set[tuple[str, str]] = field(default_factory=set)

    @property
    def named(self) -> list[RecordedBuild]:
        """Return the builds that have a name."""
        return [each for each in self.builds.values() if each.names]

    @property
    def months(self) -> float | None:
        """Return the length of the recording in months; None if the recording is too short."""
        span = self.last.time - self.since
        return None if span < _MIN_SPAN else span / MONTH

    def add(self, world: World) -> None:
        """Add the builds of the next observation."""
        since, self.last = self.last.time, world
        self.moments += 1
        self.unread += any(isinstance(each.demand, Unknown) for each in world.queues.values())
        present = set()
        for queue, request, names, started in read_work(world):
            # A provider may list the work of a request without the request's queue.
            queues = [queue] if queue else [*sorted(world.queues), ""]
            known = (each for each in queues if (each, request.id) in self.builds)
            key = (next(known, queues[0]), request.id)
            present.add(key)
            self.used.update(((name, request.task), world.time) for name in names)
            if key not in self.builds:
                arrived = min(request.pending_since or world.time, world.time)
                self.builds[key] = RecordedBuild(key[0], request, names, arrived)
            build = self.builds[key]
            build.started, build.seconds, build.is_withdrawn = started, None, False
            if started is None or not build.names:
                build.request, build.names = request, names
            elif build.request.count > 1:
                build.request = build.request.altered(count=1)
        unsure = set(find_unread(world))
        gone = {key for key in self._present - present if not unsure & {key[0], ""}}
        for build in map(self.builds.__getitem__, gone):
            if build.started is not None:
                build.seconds = max(1, int((world.time - build.started).total_seconds()))
            else:
                expected = build.request.expected_seconds
                pause = (world.time - since).total_seconds()
                build.is_withdrawn = expected is None or expected > pause
            # The queue reports the others of a group by another id, once the oldest is gone.
            build.request = build.request.altered(count=1)
        self._present = (self._present - gone) | present


def read_builds(worlds: Iterable[World]) -> Recording | None:
    """Return the builds of observations, the oldest first; None without an observation."""
    recording: Recording | None = None
    for world in worlds:
        recording = recording or Recording(world.time, world)
        recording.add(world)
    return recording


_ObservedWork = tuple[str, Request, tuple[str, ...], datetime | None]
"""Queue (empty if unknown), request and names of a build, and the start of its work, if any."""


def read_work(world: World) -> Iterator[_ObservedWork]:
    """Yield the waiting and running builds of an observation."""
    for queue, demand in world.demands():
        yield from ((queue, each, names_of(each), None) for each in demand.requests)
    for queue, worker in listed_workers(world):
        request = request_of(worker)
        if request is not None and worker.work is not None:
            started = worker.work.started_at or worker.since or world.time
            yield queue, request, worker.work.names, started


def listed_workers(world: World) -> Iterator[tuple[str, Worker]]:
    """Yield (queue, worker) per listed worker. The queue is empty for a provider's list."""
    lists = [(queue, reading.workers) for queue, reading in sorted(world.queues.items())]
    lists += [("", each.workers) for each in world.providers.values() if isinstance(each, Listing)]
    for queue, workers in lists:
        yield from ((queue, worker) for worker in (workers if isinstance(workers, tuple) else ()))


def find_unread(world: World) -> Iterator[str]:
    """Yield each queue that was not read completely; "" if a provider was not."""
    for queue, reading in world.queues.items():
        is_read = isinstance(reading.demand, Demand) and not reading.demand.estimate
        if not is_read or isinstance(reading.workers, Unknown):
            yield queue
    if any(isinstance(each, Unknown) for each in world.providers.values()):
        yield ""


def package_key(name: str) -> tuple[str, ...]:
    """Return the owner, project and package of a build name, without the chroot."""
    *project, _, package = without_directory(name).split("/")
    return (*project, package)


def common_name(names: set[str]) -> str:
    """Return a common name for builds of one package, with `*` for the differing parts."""
    owner, projects, *rest = map(set, zip(*(name.split("/") for name in names), strict=True))
    project = min(projects) if len(projects) == 1 else f"{min(projects).partition(':')[0]}:*"
    parts = [min(part) if len(part) == 1 else "*" for part in rest]
    return "/".join([min(owner), project, *parts])


_EXAMPLES = 5


class RuleReach(Value):
    """The recorded builds that an added or changed allow-list rule matches, and their cost."""

    path: tuple[str | int, ...]
    before: str = Field("", description="The replaced pattern; empty: a new rule.")
    match: str
    task: str = later("", "The only task that it applies to; empty: every task.")
    task_before: str = later("", "The task of the rule that it replaces.")
    ask: tuple[str, ...]
    builds: int = Field(description="Recorded builds that it matches.")
    of: int = Field(description="Recorded builds with a name.")
    nameless: str = later("", "Why no recorded build has a name.")
    added: int = Field(description="Matched builds that did not get all of its tags before.")
    is_wider: bool = Field(False, description="It certainly matches more than the replaced rule.")
    examples: tuple[str, ...] = Field((), description="Names of added, else of other builds.")
    packages: dict[str, int] = Field(
        default_factory=dict,
        description="Package to builds that it matches: by name, with `*` for parts that differ.",
    )
    added_packages: dict[str, int] = Field(
        default_factory=dict, description="Package to `added` builds."
    )
    owners: dict[str, int] = Field(
        default_factory=dict, description="Owner, or scope/workspace, to builds that it matches."
    )
    requesters: dict[str, int] = Field(
        default_factory=dict, description="Requester to builds that it matches."
    )
    moments: int = Field(description="Number of recorded moments.")
    seconds: int = Field(description="Seconds from the first to the last of these moments.")
    cost: Bill | None = Field(
        None, description="Cost of its builds, once, on the machines of the rule; None: unknown."
    )
    cost_before: Bill | None = Field(
        None, description="Cost of the same builds without the change; None: unknown."
    )
    month: Rate | None = Field(None, description="Cost of its builds per month; None: unknown.")
    not_known: str = Field("", description="Reason why the cost is unknown.")


def find_reach(
    edits: FleetEdits, worlds: Sequence[World], base: BuildCosts, head: BuildCosts
) -> tuple[RuleReach, ...]:
    """Return the builds that each added or changed rule matches, in the order of fleet.yaml.

    `worlds` has the oldest observation first. The last observation is that of both plans.
    """
    edited = [each for each in edits.found if each.path[0] == "powerful" and each.path[1:]]
    rules = [(each.path, each.after) for each in edited if each.after is not None]
    recording = read_builds(worlds) if rules else None
    if recording is None:
        return ()
    today = recording.last.time.date()
    old, new = AllowList(edits.base, today), AllowList(edits.head, today)
    matches: defaultdict[int, list[tuple[RecordedBuild, bool]]] = defaultdict(list)
    for build in recording.named:
        named = [(name, build.request.task) for name in build.names]
        before = {
            tag for each in named for match in old.rules_for_name(*each) for tag in match.rule.ask
        }
        for number in {match.index for each in named for match in new.rules_for_name(*each)}:
            is_added = not before.issuperset(edits.head.powerful[number].ask)
            matches[number].append((build, is_added))
    gone = [each.before for each in edited if each.before is not None]
    found = []
    for path, rule in rules:
        matched = [build for build, _ in matches[int(path[1])]]
        added = [build for build, is_added in matches[int(path[1])] if is_added]
        replaced = _take_replaced(rule, gone)
        names = dict.fromkeys(each.names[0] for each in (*added, *matched))
        reach = RuleReach(
            path=path,
            before=replaced.match if replaced else "",
            match=rule.match,
            task=rule.task or "",
            task_before=(replaced and replaced.task) or "",
            ask=tuple(rule.ask),
            builds=_count(matched),
            of=_count(recording.named),
            nameless=describe_nameless(each.request for each in recording.builds.values()),
            added=_count(added),
            is_wider=replaced is not None and _is_wider(rule, replaced),
            examples=tuple(names)[:_EXAMPLES],
            packages=_count_by_package(matched),
            added_packages=_count_by_package(added),
            owners=_count_by_name(
                (r.owner or "/".join(filter(None, (r.scope, r.workspace))), each)
                for each in matched
                for r in (each.request,)
            ),
            requesters=_count_by_name((each.request.requester or "", each) for each in matched),
            moments=recording.moments,
            seconds=int((recording.last.time - recording.since).total_seconds()),
            **_costs(rule, matched, recording, base, head),
        )
        found.append(reach)
    return tuple(found)


def _take_replaced(rule: PowerfulRule, gone: list[PowerfulRule]) -> PowerfulRule | None:
    """Remove from `gone` and return the rule that a new rule replaces; None without one."""
    likeness: tuple[Callable[[PowerfulRule], object], ...] = (
        lambda each: (each.match, each.task),
        lambda each: each.match,
        lambda each: (each.contact, each.ask),
    )
    found = (other for about in likeness for other in gone if about(other) == about(rule))
    if replaced := next(found, None):
        gone.remove(replaced)
    return replaced


def _costs(
    rule: PowerfulRule,
    matched: Sequence[RecordedBuild],
    recording: Recording,
    base: BuildCosts,
    head: BuildCosts,
) -> dict[str, Any]:
    """Return the fields of `RuleReach` about the cost of the matched builds."""
    if not matched:
        return {"not_known": "no recorded build matches"}
    placed = [head.placement_of(each.queue, each.request, also=rule.ask) for each in matched]
    total = sum_placements(placed)
    earlier = sum_placements([base.placement_of(e.queue, e.request) for e in matched])
    before = None if earlier.unplaced else earlier.cost
    if total.unplaced:
        not_known = f"no place fits {total.unplaced} of its builds and ends them in time"
        return {"cost_before": before, "not_known": not_known}
    if total.cost is None:
        missing = sum(each.counts.total() for each in placed if each.cost is None)
        not_known = f"duration or price of {missing} of its builds is unknown"
        return {"cost_before": before, "not_known": not_known}
    costs: dict[str, Any] = {"cost": total.cost, "cost_before": before}
    if recording.months is None:
        return costs | {"not_known": SHORT_RECORD}
    both = zip(matched, placed, strict=True)
    new = sum_placements([place for each, place in both if each.since > recording.since])
    return costs | {"month": (new.cost or Decimal(0)) / Decimal(recording.months)}


def _is_wider(rule: PowerfulRule, before: PowerfulRule) -> bool:
    """Return whether a rule certainly matches all matches of the rule `before`, and more."""
    if rule.task not in (None, before.task):
        return False
    if rule.match == before.match:
        return rule.task != before.task
    pieces = read_pattern(rule.match), read_pattern(before.match)
    return None not in pieces and takes_all_of(pieces[0] or (), pieces[1] or ())


def _count_by_package(builds: Iterable[RecordedBuild]) -> dict[str, int]:
    """Return the number of builds per package, highest first. Chroots are summed."""
    found: defaultdict[object, list[RecordedBuild]] = defaultdict(list)
    for build in builds:
        found[package_key(build.names[0])].append(build)
    return _count_by_name(
        (name, build)
        for alike in found.values()
        for name in [common_name({each.names[0] for each in alike})]
        for build in alike
    )


def _count(builds: Iterable[RecordedBuild]) -> int:
    return sum(each.request.count for each in builds)


def _count_by_name(builds: Iterable[tuple[str, RecordedBuild]]) -> dict[str, int]:
    """Return the number of builds per name, highest first."""
    found: Counter[str] = Counter()
    for name, build in builds:
        if name:
            found[name] += build.request.count
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))


UNUSED_AFTER = timedelta(days=90)
"""An allow-list rule is reported if no build has matched it for this long."""
_SHOWN = 20


class Gain(Value):
    """A package without an allow-list rule, with the gain of its builds on a powerful machine."""

    name: str = Field(description="Name of its builds, with `*` for the parts that differ.")
    task: str = ""
    queue: str
    builds: int = Field(description="Recorded builds of a known duration.")
    month: float | None = Field(description="Builds per month; null: recorded less than a day.")
    pool: str = Field(description="The pool that a rule would open.")
    type: str
    seconds_here: int = Field(description="Average duration where it runs without a rule.")
    seconds_there: int
    cost_here: Rate = Field(description="Average cost of one build, with boot and idle time-out.")
    cost_there: Rate
    gain_per_money: int | None = Field(
        description="Seconds gained per unit of money; null: it costs no more there."
    )
    rule: str = Field(description="An entry of `powerful` that allows its most frequent name.")


class UnusedRule(Value):
    """A rule of the allow-list that no recorded build matched."""

    path: tuple[str | int, ...]
    place: str = ""
    match: str
    task: str = ""
    contact: str = ""


class Gains(Value):
    """The result of `fleet explain powerful`."""

    fleet: str
    currency: str
    since: Moment
    until: Moment
    moments: int
    unread: int = Field(description="Moments in which a queue could not be read.")
    builds: int = Field(description="Recorded builds with a name.")
    allowed: int = Field(description="Named builds that rules of today allow.")
    not_known: int = Field(
        description="Other builds with an unknown duration or an unknown cost at a place."
    )
    packages: tuple[Gain, ...] = Field((), description="The most gain per money first.")
    more: int = Field(0, description="Packages that gain and are not listed.")
    unused: tuple[UnusedRule, ...] = ()
    is_long_enough: bool = Field(description="The history covers 90 days.")


def find_gains(fleet: Fleet, worlds: Iterable[World]) -> Gains | Unknown:
    """Return gains and unused rules; Unknown without observations. `worlds`: oldest first."""
    recording = read_builds(worlds)
    if recording is None:
        return Unknown(unknown="nothing was recorded in this time")
    since, last, until = recording.since, recording.last, recording.last.time
    builds = [each for each in recording.named if not each.is_withdrawn]
    finder, rules = (
        OptionFinder(with_price_lists(fleet, last), last),
        AllowList(fleet, until.date()),
    )
    given = {tag for rule in fleet.powerful for tag in rule.ask}
    allowed = not_known = 0
    # (Queue, task, package) to (pool, machine type) to the builds
    found: defaultdict[tuple[str, str, object], defaultdict[tuple[str, str], list[_Compared]]]
    found = defaultdict(lambda: defaultdict(list))
    for build in builds:
        request = build.request
        if request.expected_seconds is None and build.seconds:
            request = request.altered(expected_seconds=build.seconds)
        is_allowed = bool(rules.rules_for(request))
        if is_allowed or given & set(request.required):
            allowed += request.count if is_allowed else 0
            continue
        options = finder.options_for(build.queue, request)
        here, opened = cheapest(options), [each for each in options if each.asks]
        known = [each for each in opened if each.cost is not None and not each.is_late]
        if here is None or not known:
            not_known += request.count if here is None or opened else 0
            continue
        places = found[build.queue, request.task, package_key(build.names[0])]
        for there in known:
            compared = build.names[0], request.count, here, there
            places[there.pool, there.type].append(compared)
    gains: list[Gain] = []
    for (queue, task, _), there_by_type in found.items():
        each_type = (_gain(queue, task, b, recording.months) for b in there_by_type.values())
        if gaining := [each for each in each_type if each.seconds_here > each.seconds_there]:
            gains.append(min(gaining, key=_rank))
    gains.sort(key=_rank)
    recent = tasks_by_name(n for n, at in recording.used.items() if at >= until - UNUSED_AFTER)
    # Without a name of a recorded build, no rule counts as unused.
    used = rules.count_names(recent) if recent else {}
    unused = ((index, fleet.powerful[index]) for index, names in used.items() if not names)
    return Gains(
        fleet=fleet.fleet,
        currency=fleet.money.currency,
        since=since,
        until=until,
        moments=recording.moments,
        unread=recording.unread,
        builds=sum(each.request.count for each in builds),
        allowed=allowed,
        not_known=not_known,
        packages=tuple(gains[:_SHOWN]),
        more=len(gains[_SHOWN:]),
        unused=tuple(
            UnusedRule(
                path=("powerful", index),
                match=rule.match,
                task=rule.task or "",
                contact=rule.contact or "",
            )
            for index, rule in unused
        ),
        is_long_enough=until - since >= UNUSED_AFTER,
    )


_Compared = tuple[str, int, PlaceFacts, PlaceFacts]
"""Name and number of equal builds, and their places without and with a new rule."""


def _gain(queue: str, task: str, builds: list[_Compared], months: float | None) -> Gain:
    names: Counter[str] = Counter()
    seconds, costs = [0, 0], [Decimal(0), Decimal(0)]
    for name, count, *both in builds:
        names[name] += count
        for nth, place in enumerate(both):
            seconds[nth] += count * (place.seconds or 0)
            costs[nth] += count * (place.cost or Decimal(0))
    total = names.total()
    extra = costs[1] - costs[0]
    frequent = min(names, key=lambda name: (-names[name], name))
    *_, there = builds[0]
    return Gain(
        name=common_name(set(names)),
        task=task,
        queue=queue,
        builds=total,
        month=None if months is None else round(total / months, 1),
        pool=there.pool,
        type=there.type,
        seconds_here=round(seconds[0] / total),
        seconds_there=round(seconds[1] / total),
        cost_here=costs[0] / total,
        cost_there=costs[1] / total,
        gain_per_money=round((seconds[0] - seconds[1]) / extra) if extra > 0 else None,
        rule=next(place.rule for name, *_, place in builds if name == frequent),
    )


def _rank(gain: Gain) -> tuple[float, int, str, str, str]:
    """Return a sort key: gains without additional cost first, then most time saved per cost."""
    per_money = float("inf") if gain.gain_per_money is None else gain.gain_per_money
    gained = (gain.seconds_here - gain.seconds_there) * gain.builds
    return (-per_money, -gained, gain.name, gain.task, gain.pool)
