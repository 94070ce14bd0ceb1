"""Derive tags from a request's task data, tags and history, by the rules under `derive`.

A rule may depend on a tag that another rule derived, so rules are applied until they add no tag.
The order of rules does not matter; a cycle is a finding. Rules with `history` are applied last:
they add a minimum only if the request has no minimum of that number. Environments and history are
facts from one reading of a queue (`QueueContext`).
"""

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from fleet.schema.model import DebusineQueue, DeriveRule, Fleet, WorldQueue
from fleet.schema.units import TAG_PATTERN
from fleet.tagrules.names import is_source_build
from fleet.tagrules.vocabulary import read_minimums, tag_name

if TYPE_CHECKING:
    # Checks of fleet.yaml import this package without facts.
    from fleet.model.facts import Demand, Request, TaskHistory


ENVIRONMENTS = "environments"
"""Name of the table of `lookups` that a queue itself may provide."""


@dataclass(frozen=True, eq=False)
class QueueContext:
    """Facts from one reading of a queue that its requests do not contain."""

    stored: bool = False
    """Whether the queue stored tags when requests became pending. Stored tags take precedence."""
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    history: "Mapping[tuple[str, str], tuple[TaskHistory, ...]]" = field(default_factory=dict)
    """Map of (task, package) to the resources that earlier runs used."""
    any_environment: bool = False
    """Whether requests with an environment in no look-up table may run on any architecture."""


NOTHING = QueueContext()


def queue_context(demand: "Demand", *, any_environment: bool = False) -> QueueContext:
    """Return the facts of a reading that apply to all of its requests."""
    history: defaultdict[tuple[str, str], list[TaskHistory]] = defaultdict(list)
    for each in demand.history:
        history[each.task, each.package].append(each)
    known = {key: tuple(found) for key, found in history.items()}
    return QueueContext(demand.stored, demand.environments, known, any_environment)


def context_of(fleet: Fleet, queue: str, demand: "Demand") -> QueueContext:
    """Return the facts of a reading, cached for the same reading and fleet."""
    rests_on = (demand.stored, demand.environments, demand.history)
    declared = fleet.queues.get(queue)
    is_any = isinstance(declared, DebusineQueue | WorldQueue) and declared.any_environment
    return fleet.cached(
        ("context", queue),
        rests_on,
        lambda: queue_context(demand, any_environment=is_any),
    )


def find_differing_records(fleet: Fleet, context: QueueContext) -> Iterator[str]:
    """Yield a sentence per difference between environments in fleet.yaml and in the queue."""
    if not any(rule.lookup == ENVIRONMENTS for rule in fleet.derive):
        return
    own = fleet.lookups.get(ENVIRONMENTS, {})
    for value in sorted(own.keys() & context.environments.keys()):
        theirs = context.environments[value]
        for key in sorted(own[value].keys() & theirs.keys()):
            if own[value][key] != theirs[key]:
                yield (
                    f"{key} of environment {value} is {theirs[key]} in the queue but "
                    f"{own[value][key]} in lookups.{ENVIRONMENTS}; requests ask for both: "
                    "correct one of them"
                )


_MINIMUM = re.compile(r"(?P<name>[^\s<>={}]+)>=\{value\}")
_MIB_PER_GIB = 1024
_PERCENT = 100


def number_of(template: str) -> str | None:
    """Return the name of the number in a template such as `N>={value}`; None for others."""
    match = _MINIMUM.fullmatch(template)
    return match["name"] if match else None


def needed_by_history(
    rule: DeriveRule, request: "Request", context: QueueContext, known: Iterable[str]
) -> tuple[int, str] | None:
    """Return the GiB that a request needs by its history, and the reason; None if unknown."""
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
    reached = runs[-(-len(runs) * wanted.quantile // _PERCENT) - 1]
    gib = -(-reached * (_PERCENT + wanted.margin) // (_PERCENT * _MIB_PER_GIB))
    return gib, (
        f"{wanted.quantile}% of {len(runs)} earlier {request.task} runs of {request.package} "
        f"used at most {reached} MiB of {wanted.of}; margin {wanted.margin}%"
    )


_PLACEHOLDER = re.compile(r"\{value(?:\.([^{}]+))?\}")
_TAG = re.compile(TAG_PATTERN)
_MAX_TAG_LENGTH = 200
_MAX_KEY = 1000
"""Maximum characters of a key in `lookups` (`Text`)."""
_MAX_SHOWN = 60
"""Maximum characters of a value in a sentence."""


@dataclass(frozen=True)
class Derived:
    """A tag that a rule of `derive` adds to a request, with the reason."""

    tag: str
    index: int
    because: str
    value: str = ""
    """Value in the request that the tag comes from; empty if the tag needs no value."""


def derive(
    fleet: Fleet, request: "Request", tags: Iterable[str], context: QueueContext = NOTHING
) -> tuple[Derived, ...]:
    """Return the tags that rules add to a request that has these `tags`, in order of rules."""
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
        # Without a cycle, each round applies at least one new rule.
        for _ in plain:
            if not new:
                return
            new = apply([(each, fleet.derive[each]) for each in consumers.by_tags(new)], new)

    follow(apply(plain, given))
    of_history = [(index, rule) for index, rule in numbered if rule.history is not None]
    follow(apply(of_history, given | found.keys()))
    return tuple(sorted(found.values(), key=lambda derived: (derived.index, derived.tag)))


class _Input(NamedTuple):
    """The data that a rule of `derive` can read."""

    fleet: Fleet
    request: "Request"
    context: QueueContext
    known: frozenset[str]


@dataclass(frozen=True)
class UnknownTag:
    """A tag that a rule of `derive` should add, but that a value of the request leaves unknown."""

    index: int
    """Index of the rule in `derive`."""
    because: str
    value: str
    """The value that leaves the tag unknown."""
    entry: tuple[str, ...] = ()
    """Path of the missing key in `lookups` that would define the tag; empty if no key can."""


_ARCHITECTURE = "{value.architecture}"
ENVIRONMENT_KEYS = frozenset({"environment", "environment_id"})


def is_about_environments(rule: DeriveRule) -> bool:
    """Return whether a rule derives a tag from the environment of a request."""
    if rule.from_ is None or "{" not in rule.ask:
        return False
    if rule.from_.rpartition(".")[2] not in ENVIRONMENT_KEYS:
        return rule.lookup == ENVIRONMENTS
    return rule.lookup is not None or _ARCHITECTURE in rule.ask


def find_unknown_tags(
    fleet: Fleet, request: "Request", tags: Iterable[str], context: QueueContext = NOTHING
) -> Iterator[UnknownTag]:
    """Yield an UnknownTag for each rule that has a value in the request, but no tag for the value.

    `tags` are the tags of the request, including derived ones. Either the environment is in no
    look-up table or has no architecture there, or the value cannot be part of a tag.
    """
    to = _Input(fleet, request, context, frozenset(tags))
    for index, rule in enumerate(fleet.derive):
        has_value = rule.history is None and "{" in rule.ask
        if not has_value or not _applies(to, rule):
            continue
        values = _list_values(to, rule)
        if not is_about_environments(rule):
            if not context.stored:
                yield from (UnknownTag(index, *e) for e in _unusable_values(to, rule, values))
        elif not context.any_environment:
            kind = rule.ask.partition("{")[0]
            # If the queue stored `worker:build-arch:arm64`, for example, no look-up is needed.
            is_known = kind and any(tag.startswith(kind) for tag in to.known)
            for value in () if is_known else values:
                if because := _explain_unknown(to, rule, value):
                    entry = _missing_entry(to, rule, value)
                    yield UnknownTag(index, because, repr(value), entry)


def _missing_entry(to: _Input, rule: DeriveRule, value: object) -> tuple[str, ...]:
    """Return the path of the missing key in `lookups`; empty if no key can define the tag."""
    parts, written = parts_of(rule.ask), _write(value)
    if rule.lookup is None or not parts or not 1 <= len(written) <= _MAX_KEY:
        return ()
    table = to.fleet.lookups.get(rule.lookup, {})
    name = next((name for name in sorted(_row_names(value)) if name in table), written)
    row = table.get(name, {})
    return ("lookups", rule.lookup, name, next((p for p in parts if p not in row), parts[0]))


def _unusable_values(
    to: _Input, rule: DeriveRule, values: Sequence[object]
) -> Iterator[tuple[str, str]]:
    """Yield reason and value for each value that cannot be part of the rule's tag."""
    needed = f"a text or number, in a tag of at most {_MAX_TAG_LENGTH} characters"
    if _is_number(to.fleet, rule):
        needed = "a number from 0 to 999999999999"
    named = [(rule.from_, value, [*_lookup_records(to, rule, value)]) for value in values]
    if rule.tag is not None:
        named += [("tag", tag, [value]) for tag, value in _match_tags(rule.tag, to.known)]
    for name, value, used in named:
        if any(_tag_of(to.fleet, rule, each) == _UNUSABLE for each in used):
            because = f"{name} {_format_value(value)} gives no tag: {rule.ask} needs {needed}"
            yield because, f"{name} {value!r}"


def _explain_unknown(to: _Input, rule: DeriveRule, value: object) -> str:
    """Return the reason why an environment's tag is unknown; empty if the tag is known."""
    records = list(_lookup_records(to, rule, value))
    table = f"lookups.{rule.lookup} lacks it" if rule.lookup else "the rule has no `lookup`"
    if rule.lookup == ENVIRONMENTS:
        table = f"neither lookups.{rule.lookup} nor the queue has it"
    shown = f"{rule.from_} {_format_value(value)}"
    if not records:
        return f"{shown} is unknown: {table}"
    if _ARCHITECTURE in rule.ask and all(
        at_path(each, "architecture") is None for each in records
    ):
        return f"{shown} has no architecture: {table}"
    if any(_tag_of(to.fleet, rule, each) == _UNUSABLE for each in records):
        return f"{shown} is unknown: its record does not fit into {rule.ask}"
    return ""


def find_cycle(rules: Sequence[DeriveRule]) -> tuple[int, ...]:
    """Return the indices of rules that depend on each other in a cycle; empty without a cycle."""
    consumers = _Consumers(enumerate(rules))
    follows: dict[int | str, Iterable[int | str]] = {}
    follows.update(
        (index, sorted(consumers.patterns_of(rule))) for index, rule in enumerate(rules)
    )
    follows.update(consumers.by_pattern.items())
    try:
        TopologicalSorter(follows).prepare()
    except CycleError as error:
        # Each node of the cycle follows from the next one.
        cycle = [each for each in error.args[1][:0:-1] if isinstance(each, int)]
        first = cycle.index(min(cycle))
        return (*cycle[first:], *cycle[:first])
    return ()


class _Consumers:
    """Index of the rules that depend on a tag."""

    def __init__(self, rules: Iterable[tuple[int, DeriveRule]]) -> None:
        self.by_pattern: dict[str, list[int]] = {}
        """Tag, or prefix with `*`, to the indices of the rules that depend on it."""
        for index, rule in rules:
            if rule.tag is not None:
                self.by_pattern.setdefault(rule.tag, []).append(index)
        self._sorted = sorted(self.by_pattern)
        # A request's tag may be much longer than the longest pattern.
        self._longest = max(map(len, self.by_pattern), default=0)

    def by_tags(self, tags: Iterable[str]) -> list[int]:
        """Return the sorted indices of the rules that depend on one of these tags."""
        patterns = {pattern for tag in tags for pattern in (tag, *self._prefixes(tag))}
        return sorted(each for pattern in patterns for each in self.by_pattern.get(pattern, ()))

    def patterns_of(self, rule: DeriveRule) -> set[str]:
        """Return the patterns that a tag of this rule may match."""
        before, found, _ = rule.ask.partition("{")
        begins = bisect_left(self._sorted, before)
        longer = takewhile(lambda each: each.startswith(before), self._sorted[begins:])
        patterns = {*(longer if found else [before]), *self._prefixes(before)}
        return patterns & self.by_pattern.keys()

    def _prefixes(self, tag: str) -> Iterator[str]:
        """Yield the patterns with `*` that match a tag, up to the longest pattern's length."""
        return (f"{tag[:length]}*" for length in range(min(len(tag), self._longest) + 1))


def placeholders(template: str) -> tuple[str, ...]:
    """Return all placeholders in a template, valid or not."""
    return tuple(match.group() for match in re.finditer(r"\{[^{}]*\}|[{}]", template))


def parts_of(template: str) -> tuple[str, ...]:
    """Return the columns of a look-up's row that a template needs, such as `architecture`."""
    return tuple(match[1] for match in _PLACEHOLDER.finditer(template) if match[1])


def is_placeholder(text: str) -> bool:
    """Return whether a text is a valid placeholder."""
    return _PLACEHOLDER.fullmatch(text) is not None


def _applies(to: _Input, rule: DeriveRule) -> bool:
    """Return whether a rule applies to the task and the kind of build of this request."""
    if rule.task is not None and rule.task != to.request.task:
        return False
    return rule.source_build is None or rule.source_build == is_source_build(to.request)


def _apply(to: _Input, rule: DeriveRule, index: int) -> Iterator[Derived]:
    if not _applies(to, rule):
        return
    for value, because, origin in _values(to, rule):
        tag = _tag_of(to.fleet, rule, value)
        if tag:
            yield Derived(tag, index, because, origin)


def _values(to: _Input, rule: DeriveRule) -> Iterator[tuple[object, str, str]]:
    """Yield triples: the text that replaces `{value}`, where it comes from, the original value."""
    if rule.history is not None:
        found = needed_by_history(rule, to.request, to.context, to.known)
        if found is not None:
            yield *found, f"{to.request.task} {to.request.package}"
    elif rule.tag is not None:
        for tag, rest in _match_tags(rule.tag, to.known):
            yield rest, f"from tag {tag}", tag
    elif rule.from_ is not None:
        for value in _list_values(to, rule):
            for record in _lookup_records(to, rule, value):
                yield record, f"from {rule.from_}: {_format_value(value)}", repr(value)
    elif rule.source_build is not None:
        yield "", "source build" if rule.source_build else "not a source build", ""
    else:
        yield "", f"task {rule.task}" if rule.task else "every request", ""


def _match_tags(pattern: str, known: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each tag that matches a pattern, with the part of the tag in place of `*`."""
    prefix = pattern.removesuffix("*")
    for tag in sorted(known):
        if tag == pattern or (pattern.endswith("*") and tag.startswith(prefix)):
            yield tag, tag.removeprefix(prefix)


def at_path(data: object, path: str) -> object:
    """Return the value at a dotted path in nested data; None if it is missing."""
    for step in path.split("."):
        if isinstance(data, dict):
            data = data.get(step)
        elif isinstance(data, list) and step.isdecimal() and int(step) < len(data):
            data = data[int(step)]
        else:
            return None
    return data


def _list_values(to: _Input, rule: DeriveRule) -> list[object]:
    """Return the values of a request at the path of a rule; empty without path or value."""
    value = None if rule.from_ is None else at_path(to.request.task_data, rule.from_)
    return value if isinstance(value, list) else [] if value is None else [value]


def _lookup_records(to: _Input, rule: DeriveRule, value: object) -> Iterator[object]:
    """Yield a value's rows in the look-up tables; without rows, the value's own look-up string.

    The tables of file and queue may both have a row; if the rows differ, both give tags.
    """
    tables: list[Mapping[str, Mapping[str, str]]] = []
    tables += [to.fleet.lookups.get(rule.lookup, {})] if rule.lookup else []
    tables += [to.context.environments] if rule.lookup == ENVIRONMENTS else []
    names = _row_names(value)
    rows = [table[name] for table in tables for name in sorted(names & table.keys())]
    if rows:
        yield from rows
        return
    read = _read_lookup(value)
    if read is not None and (rule.lookup is not None or "{value}" not in rule.ask):
        yield read
    elif rule.lookup is None:
        yield value


def _row_names(value: object) -> set[str]:
    """Return the names under which a look-up table may have the row of a value."""
    return {str(value), _write(value)} if isinstance(value, str | int | float) else set()


def _read_lookup(value: object) -> dict[str, str] | None:
    """Parse a look-up string of Debusine, like debian/match:codename=trixie:architecture=arm64."""
    if not isinstance(value, str) or "/match:" not in value:
        return None
    collection, _, conditions = value.partition("/match:")
    pairs = [condition.partition("=") for condition in conditions.split(":")]
    return {"collection": collection} | {key: text for key, sign, text in pairs if sign}


_UNUSABLE = ""
"""Result for a value that exists but cannot be part of a tag."""


def _tag_of(fleet: Fleet, rule: DeriveRule, value: object) -> str | None:
    """Return a rule's tag for a value; _UNUSABLE if invalid, None if a part is missing."""
    parts = []
    for match in _PLACEHOLDER.finditer(rule.ask):
        if match[1] and not isinstance(value, dict | list):
            return _UNUSABLE
        found = at_path(value, match[1]) if match[1] else value
        if found is None:
            return None
        parts.append(_write(found))
    filled = iter(parts)
    tag = _PLACEHOLDER.sub(lambda _: next(filled), rule.ask)
    if not is_tag(tag):
        return _UNUSABLE
    if not parts:
        return tag
    if _is_number(fleet, rule) and not read_minimums([tag], [tag_name(tag)])[1]:
        return _UNUSABLE
    # For a tag without `*`, the value is empty.
    return tag if rule.from_ is None or all(parts) else _UNUSABLE


def is_tag(text: str) -> bool:
    """Return whether a text is a valid tag in fleet.yaml. A queue may have longer tags."""
    return len(text) <= _MAX_TAG_LENGTH and _TAG.match(text) is not None


def _is_number(fleet: Fleet, rule: DeriveRule) -> bool:
    """Return whether a rule requires a minimum of a number that fleet.yaml declares."""
    declared = fleet.tags.get(tag_name(rule.ask)) if ">=" in rule.ask else None
    return declared is not None and declared.kind == "number"


def value_for(rule: DeriveRule, tag: str) -> str:
    """Return the value for which a rule adds this tag; empty if the rule cannot add the tag."""
    if len(placeholders(rule.ask)) != 1:
        return ""
    before, _, rest = rule.ask.partition("{")
    after = rest.partition("}")[2]
    is_given = tag.startswith(before) and tag.endswith(after)
    return tag[len(before) : len(tag) - len(after)] if is_given else ""


def _write(value: object) -> str:
    """Return a text without surrounding blanks, or a number without trailing zeros."""
    if isinstance(value, float) and isfinite(value):
        value = int(value) if value.is_integer() else f"{Decimal(repr(value)):f}"
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value).strip()


def _format_value(value: object) -> str:
    """Return a value of task data as text, cut to a maximum length."""
    text = value if isinstance(value, str) and value.strip() == value != "" else repr(value)
    if isinstance(value, bool | dict | list):
        text = json.dumps(value, default=str)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
