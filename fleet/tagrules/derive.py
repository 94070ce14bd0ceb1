"""This module gives requests the tags that their own task data imply, by the rules of `derive`.

Rules are applied until they add nothing: a rule may build on what another derived (`tag`). What
one rule gives never depends on their order. Rules that feed each other in a circle are a finding.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.schema.base import TAG_PATTERN
from fleet.schema.model import DeriveRule, Fleet
from fleet.tagrules.names import is_source_build

if TYPE_CHECKING:
    from fleet.facts import Request

_PLACEHOLDER = re.compile(r"\{value(?:\.([^{}]+))?\}")
_TAG = re.compile(TAG_PATTERN)
_MOST = 200


@dataclass(frozen=True)
class Derived:
    """A tag that a rule of `derive` gives a request, and from what."""

    tag: str
    index: int
    because: str


def derive(fleet: Fleet, request: "Request", tags: Iterable[str]) -> tuple[Derived, ...]:
    """Return the tags that the rules add to a request that asks for `tags`, in rule order."""
    known = set(tags)
    found: dict[str, Derived] = {}
    # Without a circle, each round goes at least one rule further.
    for _ in fleet.derive:
        added = [
            derived
            for index, rule in enumerate(fleet.derive)
            for derived in _apply(fleet, request, rule, index, known)
            if derived.tag not in known
        ]
        if not added:
            break
        for derived in added:
            found.setdefault(derived.tag, derived)
            known.add(derived.tag)
    return tuple(sorted(found.values(), key=lambda derived: (derived.index, derived.tag)))


def find_circle(rules: Sequence[DeriveRule]) -> tuple[int, ...]:
    """Return the places of rules that feed each other in a circle; none where there is none."""
    feeds = {
        index: [other for other, fed in enumerate(rules) if _feeds(rule, fed)]
        for index, rule in enumerate(rules)
    }
    for start in feeds:
        path = _way_back(feeds, start)
        if path:
            return path
    return ()


def placeholders(template: str) -> tuple[str, ...]:
    """Return the parts of a template that stand for something, well written or not."""
    return tuple(match.group() for match in re.finditer(r"\{[^{}]*\}|[{}]", template))


def is_placeholder(text: str) -> bool:
    """Say whether a part of a template stands for a value."""
    return _PLACEHOLDER.fullmatch(text) is not None


def _way_back(feeds: dict[int, list[int]], start: int) -> tuple[int, ...]:
    """Return a way from a rule back to itself."""
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        for there in feeds[here]:
            if there == start:
                way = [here]
                while way[-1] != start:
                    way.append(came_from[way[-1]])
                return tuple(reversed(way))
            if there not in came_from:
                came_from[there] = here
                waiting.append(there)
    return ()


def _feeds(rule: DeriveRule, fed: DeriveRule) -> bool:
    """Say whether what a rule asks for may be what another one builds on."""
    if fed.tag is None:
        return False
    before, found, _ = rule.ask.partition("{")
    wanted, prefix = fed.tag.removesuffix("*"), fed.tag.endswith("*")
    if not found:
        return rule.ask.startswith(wanted) if prefix else rule.ask == wanted
    return wanted.startswith(before) or (prefix and before.startswith(wanted))


def _apply(
    fleet: Fleet, request: "Request", rule: DeriveRule, index: int, known: Iterable[str]
) -> Iterator[Derived]:
    if rule.task is not None and rule.task != request.task:
        return
    if rule.source_build is not None and rule.source_build != is_source_build(request):
        return
    for value, because in _values(fleet, request, rule, known):
        tag = _filled(rule.ask, value)
        if tag is not None and len(tag) <= _MOST and _TAG.match(tag):
            yield Derived(tag, index, because)


def _values(
    fleet: Fleet, request: "Request", rule: DeriveRule, known: Iterable[str]
) -> Iterator[tuple[object, str]]:
    """Yield what `{value}` stands for, and where it is from."""
    if rule.tag is not None:
        yield from _from_tags(rule.tag, known)
    elif rule.from_ is not None:
        for value in _members(_at(request.task_data, rule.from_)):
            found = _looked_up(fleet, rule, value)
            if found is not None:
                yield found, f"from {rule.from_}: {value}"
    elif rule.source_build is not None:
        yield "", "it is a source build" if rule.source_build else "it is no source build"
    else:
        yield "", f"of task {rule.task}" if rule.task else "of every request"


def _from_tags(pattern: str, known: Iterable[str]) -> Iterator[tuple[object, str]]:
    prefix = pattern.removesuffix("*")
    for tag in sorted(known):
        if tag == pattern or (pattern.endswith("*") and tag.startswith(prefix)):
            yield tag.removeprefix(prefix), f"from its tag {tag}"


def _at(data: object, path: str) -> object:
    """Return what stands at a dotted path; None where nothing does."""
    for step in path.split("."):
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data


def _members(value: object) -> Iterator[object]:
    if value is None:
        return
    if isinstance(value, list):
        yield from value
    else:
        yield value


def _looked_up(fleet: Fleet, rule: DeriveRule, value: object) -> object:
    """Return the record of a value: its row in the table, else what its look-up string says."""
    if rule.lookup is not None:
        table = fleet.lookups.get(rule.lookup, {})
        if isinstance(value, str | int) and str(value) in table:
            return table[str(value)]
        return _read_lookup(value)
    return value if _read_lookup(value) is None or "{value}" in rule.ask else _read_lookup(value)


def _read_lookup(value: object) -> dict[str, str] | None:
    """Read Debusine's look-up strings, as in debian/match:codename=trixie:architecture=arm64."""
    if not isinstance(value, str) or "/match:" not in value:
        return None
    collection, _, conditions = value.partition("/match:")
    pairs = [condition.partition("=") for condition in conditions.split(":")]
    return {"collection": collection} | {key: text for key, sign, text in pairs if sign}


def _filled(template: str, value: object) -> str | None:
    """Return the tag of a template; None where it stands for something that is not there."""
    parts = []
    for match in _PLACEHOLDER.finditer(template):
        found = _at(value, match[1]) if match[1] else value
        if isinstance(found, bool) or not isinstance(found, str | int):
            return None
        parts.append(str(found))
    filled = iter(parts)
    return _PLACEHOLDER.sub(lambda _: next(filled), template)
