"""The recorded builds that an allow-list rule matches, with their owners and cost.

Monthly figures count the builds after the first observation and need at least one day.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from pydantic import Field

from fleet.explain.config_changes import Edits
from fleet.explain.costs import BuildCosts, sum_placements
from fleet.explain.recorded_builds import (
    RecordedBuild,
    Recording,
    common_name,
    package_key,
    read_builds,
)
from fleet.model.facts import Request, World
from fleet.model.values import Bill, Rate, Value, later
from fleet.schema.model import PowerfulRule
from fleet.tagrules.allow import AllowList, read_pattern, takes_all_of
from fleet.tagrules.names import describe_nameless
from fleet.words.answers import SHORT_RECORD

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
    edits: Edits, worlds: Sequence[World], base: BuildCosts, head: BuildCosts
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
            owners=_count_by_name((_owner(each.request), each) for each in matched),
            requesters=_count_by_name((each.request.requester or "", each) for each in matched),
            moments=recording.moments,
            seconds=int((recording.last.time - recording.since).total_seconds()),
            **_costs(rule, matched, recording, base, head),
        )
        found.append(reach)
    return tuple(found)


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


def _owner(request: Request) -> str:
    return request.owner or "/".join(filter(None, (request.scope, request.workspace)))


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
