"""The recorded builds that an allow-list rule matches, with their owners and cost.

A build waits or runs in one or more observations of a fleet; equal ids are one build. Monthly
figures count the builds after the first observation and need at least one day. They are lower
bounds, because a build that starts and ends between two observations is not recorded.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import NamedTuple

from pydantic import Field

from fleet.explain.config_changes import Edits
from fleet.explain.costs import BuildCosts, Placement
from fleet.explain.options import request_of
from fleet.model.facts import Demand, Request, World
from fleet.model.values import Bill, Rate, Value, later
from fleet.schema.findings import Path
from fleet.schema.model import PowerfulRule
from fleet.tagrules.allow import AllowList, read_pattern, takes_all_of
from fleet.tagrules.names import describe_nameless, names_of, without_directory
from fleet.words.answers import SHORT_RECORD

MONTH = timedelta(hours=730)
_MIN_SPAN = timedelta(days=1)
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


@dataclass(frozen=True)
class _Build:
    """A recorded build with its names and its request."""

    queue: str
    names: tuple[str, ...]
    request: Request
    is_later: bool
    """True if the first observation does not contain the build."""


def find_reach(
    edits: Edits, worlds: Sequence[World], base: BuildCosts, head: BuildCosts
) -> tuple[RuleReach, ...]:
    """Return the builds that each added or changed rule matches, in the order of fleet.yaml.

    `worlds` has the oldest observation first. The last observation is that of both plans.
    """
    edited = [each for each in edits.found if each.path[0] == "powerful" and each.path[1:]]
    rules = [(each.path, each.after) for each in edited if each.after is not None]
    if not rules:
        return ()
    gone = [each.before for each in edited if each.before is not None]
    seen = _RecordedBuilds(edits, worlds, base, head)
    return tuple(seen.reach(path, rule, _take_replaced(rule, gone)) for path, rule in rules)


def _take_replaced(rule: PowerfulRule, gone: list[PowerfulRule]) -> PowerfulRule | None:
    """Remove from `gone` and return the rule that a new rule replaces; None without one."""
    for about in (
        lambda each: (each.match, each.task),
        lambda each: each.match,
        lambda each: (each.contact, each.ask),
    ):
        for other in gone:
            if about(other) == about(rule):
                gone.remove(other)
                return other
    return None


class _RecordedBuilds:
    """The recorded builds, and their cost without and with the change."""

    def __init__(
        self, edits: Edits, worlds: Sequence[World], base: BuildCosts, head: BuildCosts
    ) -> None:
        self._base, self._head = base, head
        recorded = [*_builds(worlds)]
        self._builds = [each for each in recorded if each.names]
        self._nameless = ""
        if not self._builds:
            self._nameless = describe_nameless(each.request for each in recorded)
        self._matched: defaultdict[int, list[_Build]] = defaultdict(list)
        self._before: dict[int, frozenset[str]] = {}
        today = worlds[-1].time.date()
        old, new = AllowList(edits.base, today), AllowList(edits.head, today)
        for build in self._builds:
            named = [(name, build.request.task) for name in build.names]
            for number in {m.index for each in named for m in new.rules_for_name(*each)}:
                self._matched[number].append(build)
            rules = (match.rule for each in named for match in old.rules_for_name(*each))
            self._before[id(build)] = frozenset(tag for rule in rules for tag in rule.ask)
        self._moments = len(worlds)
        self._span = worlds[-1].time - worlds[0].time

    def reach(self, path: Path, rule: PowerfulRule, before: PowerfulRule | None) -> RuleReach:
        """Return the recorded builds that a rule matches."""
        matched = self._matched[int(path[1])]
        added = [each for each in matched if not self._before[id(each)].issuperset(rule.ask)]
        names = dict.fromkeys(each.names[0] for each in (*added, *matched))
        cost = self._cost(rule, matched)
        return RuleReach(
            path=path,
            before=before.match if before else "",
            match=rule.match,
            task=rule.task or "",
            task_before=(before and before.task) or "",
            ask=tuple(rule.ask),
            builds=_count(matched),
            of=_count(self._builds),
            nameless=self._nameless,
            added=_count(added),
            is_wider=before is not None and _is_wider(rule, before),
            examples=tuple(names)[:_EXAMPLES],
            packages=_count_by_package(matched),
            added_packages=_count_by_package(added),
            owners=_count_by_name((_owner(each.request), each) for each in matched),
            requesters=_count_by_name((each.request.requester or "", each) for each in matched),
            moments=self._moments,
            seconds=int(self._span.total_seconds()),
            cost=cost.total,
            cost_before=cost.before,
            month=cost.month,
            not_known=cost.not_known,
        )

    def _cost(self, rule: PowerfulRule, matched: list[_Build]) -> "_Cost":
        if not matched:
            return _Cost(not_known="no recorded build matches")
        placed = [self._head.placement_of(b.queue, b.request, also=rule.ask) for b in matched]
        found = [self._base.placement_of(each.queue, each.request) for each in matched]
        total, not_known = _sum(placed)
        before, _ = _sum(found)
        if total is None or self._span < _MIN_SPAN:
            return _Cost(total, before, not_known=not_known or SHORT_RECORD)
        later = [each for build, each in zip(matched, placed, strict=True) if build.is_later]
        month = (_sum(later)[0] or Decimal(0)) * Decimal(MONTH / self._span)
        return _Cost(total, before, month)


class _Cost(NamedTuple):
    """The cost of the builds that a rule matches. A figure is None if unknown."""

    total: Decimal | None = None
    before: Decimal | None = None
    """Cost of the same builds without the change of fleet.yaml."""
    month: Decimal | None = None
    not_known: str = ""


def _sum(placed: Iterable[Placement]) -> tuple[Decimal | None, str]:
    """Return (total cost, "") of builds, or (None, reason) if the cost is unknown."""
    placed = tuple(placed)
    if unplaced := sum(each.unplaced for each in placed):
        return None, f"no place fits {unplaced} of its builds and ends them in time"
    costs = [each.cost for each in placed if each.cost is not None]
    if len(costs) < len(placed):
        missing = sum(each.counts.total() for each in placed if each.cost is None)
        return None, f"duration or price of {missing} of its builds is unknown"
    return sum(costs, Decimal(0)), ""


def _builds(worlds: Sequence[World]) -> Iterator[_Build]:
    """Yield each build in these observations once, with its latest state."""
    found: dict[tuple[str, str], _Build] = {}
    first: set[tuple[str, str]] = set()
    for number, world in enumerate(worlds):
        for queue, names, request in _read_work(world):
            key = queue, request.id
            if not number:
                first.add(key)
            found[key] = _Build(queue, names, request, key not in first)
    yield from found.values()


def _read_work(world: World) -> Iterator[tuple[str, tuple[str, ...], Request]]:
    """Yield the queue, names and request of each waiting or running build."""
    for queue, reading in world.queues.items():
        if isinstance(reading.demand, Demand):
            for request in reading.demand.requests:
                yield queue, names_of(request), request
        for worker in reading.workers if isinstance(reading.workers, tuple) else ():
            ran, work = request_of(worker), worker.work
            if ran is not None and work is not None:
                yield queue, work.names, ran


def _is_wider(rule: PowerfulRule, before: PowerfulRule) -> bool:
    """Return whether a rule certainly matches all matches of the rule `before`, and more."""
    if rule.task not in (None, before.task):
        return False
    if rule.match == before.match:
        return rule.task != before.task
    pieces = read_pattern(rule.match), read_pattern(before.match)
    return None not in pieces and takes_all_of(pieces[0] or (), pieces[1] or ())


def _owner(request: Request) -> str:
    if request.owner:
        return request.owner
    return "/".join(filter(None, (request.scope, request.workspace)))


def _count_by_package(builds: Iterable[_Build]) -> dict[str, int]:
    """Return the number of builds per package, highest first. Chroots are summed."""
    found: defaultdict[object, list[_Build]] = defaultdict(list)
    for build in builds:
        found[package_key(build.names[0])].append(build)
    return _count_by_name(
        (name, build)
        for alike in found.values()
        for name in [common_name({each.names[0] for each in alike})]
        for build in alike
    )


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


def _count(builds: Iterable[_Build]) -> int:
    return sum(each.request.count for each in builds)


def _count_by_name(builds: Iterable[tuple[str, _Build]]) -> dict[str, int]:
    """Return the number of builds per name, highest first."""
    found: Counter[str] = Counter()
    for name, build in builds:
        if name:
            found[name] += build.request.count
    return dict(sorted(found.items(), key=lambda entry: (-entry[1], entry[0])))
