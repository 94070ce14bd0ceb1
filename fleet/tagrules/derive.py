"""Derive tags from a request's task data, its tags and its history, by the rules of `derive`.

Rules are applied until they add nothing, because a rule may build on what another derived (`tag`);
their order does not matter, and a cycle is a finding. Rules with `history` come last: they give a
minimum only if the request has none of that number.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from fleet.schema.model import DeriveRule, Fleet
from fleet.schema.units import TAG_PATTERN
from fleet.tagrules.context import ENVIRONMENTS, NOTHING, QueueContext
from fleet.tagrules.names import is_source_build
from fleet.tagrules.vocabulary import tag_name

if TYPE_CHECKING:
    from fleet.model.facts import Request


_MINIMUM = re.compile(r"(?P<name>[^\s<>={}]+)>=\{value\}")
_MIB_PER_GIB = 1024
_WHOLE = 100


def number_of(template: str) -> str | None:
    """Return the name of the number whose minimum a template asks for; None for other tags."""
    match = _MINIMUM.fullmatch(template)
    return match["name"] if match else None


def needed_by_history(
    rule: DeriveRule, request: "Request", context: QueueContext, known: Iterable[str]
) -> tuple[int, str] | None:
    """Return how many GiB a request needs by its history, and why; None if that is not known."""
    wanted = rule.history
    own = any(">=" in tag and tag_name(tag) == number_of(rule.ask) for tag in known)
    if wanted is None or request.package is None or own:
        return None
    runs = sorted(
        size
        for each in context.history.get((request.task, request.package), ())
        for size in (each.memory_mib if wanted.of == "memory" else each.disk_mib)
    )
    if len(runs) < wanted.min_runs:
        return None
    reached = runs[-(-len(runs) * wanted.quantile // _WHOLE) - 1]
    gib = -(-reached * (_WHOLE + wanted.margin) // (_WHOLE * _MIB_PER_GIB))
    return gib, (
        f"{wanted.quantile}% of {len(runs)} earlier {request.task} runs of {request.package} "
        f"used at most {reached} MiB of {wanted.of}; margin {wanted.margin}%"
    )


_PLACEHOLDER = re.compile(r"\{value(?:\.([^{}]+))?\}")
_TAG = re.compile(TAG_PATTERN)
_MOST = 200


@dataclass(frozen=True)
class Derived:
    """A tag that a rule of `derive` adds to a request, and why."""

    tag: str
    index: int
    because: str


def derive(
    fleet: Fleet, request: "Request", tags: Iterable[str], context: QueueContext = NOTHING
) -> tuple[Derived, ...]:
    """Return the tags that the rules add to a request that asks for `tags`, in rule order."""
    given = frozenset(tags)
    numbered = list(enumerate(fleet.derive))
    plain = [(index, rule) for index, rule in numbered if rule.history is None]
    consumers = _Consumers(plain)
    found: dict[str, Derived] = {}

    def apply(rules: Iterable[tuple[int, DeriveRule]], known: frozenset[str]) -> frozenset[str]:
        new: dict[str, Derived] = {}
        for index, rule in rules:
            for derived in _apply(_Input(fleet, request, context, known), rule, index):
                if derived.tag not in given and derived.tag not in found:
                    new.setdefault(derived.tag, derived)
        found.update(new)
        return frozenset(new)

    def follow(new: frozenset[str]) -> None:
        # Without a cycle, each round goes at least one rule further.
        for _ in plain:
            if not new:
                return
            new = apply([(each, fleet.derive[each]) for each in consumers.by_tags(new)], new)

    follow(apply(plain, given))
    of_history = [(index, rule) for index, rule in numbered if rule.history is not None]
    follow(apply(of_history, given | found.keys()))
    return tuple(sorted(found.values(), key=lambda derived: (derived.index, derived.tag)))


class _Input(NamedTuple):
    """What rules are applied to."""

    fleet: Fleet
    request: "Request"
    context: QueueContext
    known: frozenset[str]


@dataclass(frozen=True)
class UnknownEnvironment:
    """A value of task data whose architecture no look-up tells."""

    index: int
    """Of the rule in `derive`."""
    because: str


_ARCHITECTURE = "{value.architecture}"
ENVIRONMENT_KEYS = frozenset({"environment", "environment_id"})


def is_about_environments(rule: DeriveRule) -> bool:
    """Say whether a rule turns the environment of a request into a tag."""
    if rule.from_ is None or "{" not in rule.ask:
        return False
    if rule.from_.rpartition(".")[2] not in ENVIRONMENT_KEYS:
        return rule.lookup == ENVIRONMENTS
    return rule.lookup is not None or _ARCHITECTURE in rule.ask


def find_unknown_environments(
    fleet: Fleet, request: "Request", tags: Iterable[str], context: QueueContext = NOTHING
) -> Iterator[UnknownEnvironment]:
    """Yield the environments that no look-up knows, or without an architecture.

    `tags` are those of the request, derived ones included. A tag of the same kind among them
    tells the same: a `worker:build-arch:arm64` that the queue stored needs no look-up.
    """
    known = frozenset(tags)
    for index, rule in enumerate(fleet.derive):
        if not is_about_environments(rule):
            continue
        to = _Input(fleet, request, context, known)
        kind = rule.ask.partition("{")[0]
        if not _applies(to, rule) or (kind and any(tag.startswith(kind) for tag in known)):
            continue
        for value in _members(at_path(request.task_data, str(rule.from_))):
            because = _why_unknown(to, rule, value)
            if because:
                yield UnknownEnvironment(index, because)


def _why_unknown(to: _Input, rule: DeriveRule, value: object) -> str:
    """Return the reason why the tag of an environment is unknown; "" if it is known."""
    records = list(_looked_up(to, rule, value))
    table = f"lookups.{rule.lookup} lacks it" if rule.lookup else "the rule has no `lookup`"
    if rule.lookup == ENVIRONMENTS:
        table = f"neither lookups.{rule.lookup} nor the queue has it"
    shown = value if isinstance(value, str | int) else type(value).__name__
    if not records:
        return f"{rule.from_} {shown} is unknown: {table}"
    if _ARCHITECTURE in rule.ask and all(
        at_path(each, "architecture") is None for each in records
    ):
        return f"{rule.from_} {shown} has no architecture: {table}"
    return ""


def find_cycle(rules: Sequence[DeriveRule]) -> tuple[int, ...]:
    """Return the indices of rules that form a cycle; empty if there is none."""
    consumers = _Consumers(enumerate(rules))
    done: set[int] = set()
    for start in range(len(rules)):
        way = {start: iter(consumers.by_rule(rules[start]))} if start not in done else {}
        while way:
            here = next(reversed(way))
            there = next(way[here], None)
            if there is None:
                done.add(here)
                del way[here]
            elif there in way:
                cycle = list(way)[list(way).index(there) :]
                first = cycle.index(min(cycle))
                return (*cycle[first:], *cycle[:first])
            elif there not in done:
                way[there] = iter(consumers.by_rule(rules[there]))
    return ()


class _Consumers:
    """The rules that build on a tag."""

    def __init__(self, rules: Iterable[tuple[int, DeriveRule]]) -> None:
        self._by_tag: dict[str, list[int]] = {}
        for index, rule in rules:
            if rule.tag is not None:
                self._by_tag.setdefault(rule.tag, []).append(index)
        self._sorted = sorted(self._by_tag)

    def by_tags(self, tags: Iterable[str]) -> list[int]:
        """Return the indices of the rules that build on one of these tags."""
        patterns = {pattern for tag in tags for pattern in (tag, *_prefixes(tag))}
        return sorted(each for pattern in patterns for each in self._by_tag.get(pattern, ()))

    def by_rule(self, rule: DeriveRule) -> list[int]:
        """Return the indices of the rules that may build on what this one asks for."""
        before, found, _ = rule.ask.partition("{")
        if not found:
            return self.by_tags([rule.ask])
        begins = bisect_left(self._sorted, before)
        longer = takewhile(lambda each: each.startswith(before), self._sorted[begins:])
        patterns = {*longer, *_prefixes(before)}
        return sorted(each for pattern in patterns for each in self._by_tag.get(pattern, ()))


def _prefixes(tag: str) -> Iterator[str]:
    """Yield every pattern with a `*` that a tag matches."""
    return (f"{tag[:length]}*" for length in range(len(tag) + 1))


def placeholders(template: str) -> tuple[str, ...]:
    """Return the placeholders in a template, invalid ones included."""
    return tuple(match.group() for match in re.finditer(r"\{[^{}]*\}|[{}]", template))


def is_placeholder(text: str) -> bool:
    """Say whether a placeholder is valid."""
    return _PLACEHOLDER.fullmatch(text) is not None


def _applies(to: _Input, rule: DeriveRule) -> bool:
    """Say whether a rule is for requests of this task and kind."""
    if rule.task is not None and rule.task != to.request.task:
        return False
    return rule.source_build is None or rule.source_build == is_source_build(to.request)


def _apply(to: _Input, rule: DeriveRule, index: int) -> Iterator[Derived]:
    if not _applies(to, rule):
        return
    for value, because in _values(to, rule):
        tag = _filled(rule.ask, value)
        if tag is not None and len(tag) <= _MOST and _TAG.match(tag):
            yield Derived(tag, index, because)


def _values(to: _Input, rule: DeriveRule) -> Iterator[tuple[object, str]]:
    """Yield each value of `{value}`, and where it is from."""
    if rule.history is not None:
        found = needed_by_history(rule, to.request, to.context, to.known)
        if found is not None:
            yield found
    elif rule.tag is not None:
        yield from _from_tags(rule.tag, to.known)
    elif rule.from_ is not None:
        for value in _members(at_path(to.request.task_data, rule.from_)):
            for record in _looked_up(to, rule, value):
                yield record, f"from {rule.from_}: {value}"
    elif rule.source_build is not None:
        yield "", "source build" if rule.source_build else "not a source build"
    else:
        yield "", f"task {rule.task}" if rule.task else "every request"


def _from_tags(pattern: str, known: Iterable[str]) -> Iterator[tuple[object, str]]:
    prefix = pattern.removesuffix("*")
    for tag in sorted(known):
        if tag == pattern or (pattern.endswith("*") and tag.startswith(prefix)):
            yield tag.removeprefix(prefix), f"from tag {tag}"


def at_path(data: object, path: str) -> object:
    """Return the value at a dotted path; None if there is none."""
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


def _looked_up(to: _Input, rule: DeriveRule, value: object) -> Iterator[object]:
    """Yield the records of a value: its rows in the tables, else those of its look-up string.

    The file and the queue may each have a row; if they differ, the request gets the tags of both.
    """
    tables: list[Mapping[str, Mapping[str, str]]] = []
    tables += [to.fleet.lookups.get(rule.lookup, {})] if rule.lookup else []
    tables += [to.context.environments] if rule.lookup == ENVIRONMENTS else []
    rows = [t[str(value)] for t in tables if isinstance(value, str | int) and str(value) in t]
    if rows:
        yield from rows
        return
    read = _read_lookup(value)
    if read is not None and (rule.lookup is not None or "{value}" not in rule.ask):
        yield read
    elif rule.lookup is None:
        yield value


def _read_lookup(value: object) -> dict[str, str] | None:
    """Read Debusine's look-up strings, as in debian/match:codename=trixie:architecture=arm64."""
    if not isinstance(value, str) or "/match:" not in value:
        return None
    collection, _, conditions = value.partition("/match:")
    pairs = [condition.partition("=") for condition in conditions.split(":")]
    return {"collection": collection} | {key: text for key, sign, text in pairs if sign}


def _filled(template: str, value: object) -> str | None:
    """Return the tag of a template; None if a placeholder has no value."""
    parts = []
    for match in _PLACEHOLDER.finditer(template):
        found = at_path(value, match[1]) if match[1] else value
        if isinstance(found, bool) or not isinstance(found, str | int):
            return None
        parts.append(str(found))
    filled = iter(parts)
    return _PLACEHOLDER.sub(lambda _: next(filled), template)
