"""The rules for tags in fleet.yaml. The most specific rule that sets a key decides the key.

A name under `tags` that ends in `*` is a rule for all tags with that prefix. An exact name takes
precedence over a prefix, and a longer prefix over a shorter one. If the best rule does not set a
key, the next rule applies: a special rule does not permit what a general rule forbids.

A worker states `memory_gib=128`, a request requires `memory_gib>=64`. A number is at least 0,
below 10**12, and has at most six decimal places.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal, NamedTuple

from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Pool, TagRule
from fleet.schema.rules import Asker, ProvidedBy

Numbers = tuple[tuple[str, Decimal], ...]
"""Pairs of numeric tag and number, sorted by tag."""

_WRITTEN = re.compile(
    r"(?P<name>[^\s<>=]+)(?P<sign>>=|=)(?P<number>[0-9]{1,12}(\.[0-9]{1,6})?)", re.ASCII
)


_NAMED = re.compile(r"(?P<name>[^\s<>=]+)(>=|=)", re.ASCII)


def tag_name(tag: str) -> str:
    """Return the name in `name>=64` or `name=128`. Return a plain tag unchanged."""
    match = _NAMED.match(tag) if "=" in tag else None  # almost all tags are plain
    return match["name"] if match else tag


def read_minimums(tags: Iterable[str], names: Iterable[str]) -> tuple[frozenset[str], Numbers]:
    """Return the plain tags, and the highest required minimum of each numeric tag in `names`."""
    return _read(tags, frozenset(names), ">=")


def read_numbers(tags: Iterable[str], names: Iterable[str]) -> tuple[frozenset[str], Numbers]:
    """Return the plain tags, and the highest stated value of each numeric tag in `names`."""
    return _read(tags, frozenset(names), "=")


def unmet(minimums: Numbers, numbers: Numbers) -> tuple[str, ...]:
    """Return the sorted minimums, as tags, that the numbers do not reach."""
    have = dict(numbers)
    return tuple(f"{name}>={least:f}" for name, least in minimums if have.get(name, -1) < least)


def write_minimums(minimums: Numbers) -> tuple[str, ...]:
    """Return minimums as tags, such as `memory_gib>=64`."""
    return tuple(f"{name}>={least:f}" for name, least in minimums)


def _read(tags: Iterable[str], names: frozenset[str], sign: str) -> tuple[frozenset[str], Numbers]:
    plain: set[str] = set()
    found: dict[str, Decimal] = {}
    for tag in tags:
        match = _WRITTEN.fullmatch(tag) if sign in tag else None
        if match and match["sign"] == sign and match["name"] in names:
            number = Decimal(match["number"]).normalize()
            found[match["name"]] = max(number, found.get(match["name"], number))
        else:
            plain.add(tag)
    return frozenset(plain), tuple(sorted(found.items()))


Key = Literal["kind", "on_demand", "exclusive", "asked_by", "provided_by"]


_MAX_CACHED = 10_000
"""Maximum tags to cache for later vocabularies of the same fleet."""


@dataclass(frozen=True)
class Vocabulary:
    """The rules for tags in one fleet.yaml."""

    fleet: Fleet

    @cached_property
    def numeric(self) -> frozenset[str]:
        """Return the names of all tags of kind number."""
        return frozenset(name for name, rule in self.fleet.tags.items() if rule.kind == "number")

    def names_of(self, tag: str) -> tuple[str, ...]:
        """Return the names under `tags` that apply to a tag, the most specific name first."""
        if tag not in self._names_by_tag:
            name = tag_name(tag) if tag_name(tag) in self.numeric else tag
            # A request's tag may be much longer than the longest name under `tags`.
            longest = min(len(name), max(map(len, self.fleet.tags), default=0))
            prefixes = (f"{name[:length]}*" for length in range(longest, -1, -1))
            found = (name, *(prefix for prefix in prefixes if prefix != name))
            self._names_by_tag[tag] = tuple(each for each in found if each in self.fleet.tags)
        return self._names_by_tag[tag]

    @cached_property
    def _names_by_tag(self) -> dict[str, tuple[str, ...]]:
        """Return the cache of `names_of`, a map of tag to names."""
        known: dict[str, tuple[str, ...]] = self.fleet.cached("names of tags", (), dict)
        return known if len(known) < _MAX_CACHED else {}

    def is_on_demand(self, tag: str) -> bool:
        """Return whether machines with this tag are created only for requests that require it."""
        rule, _ = self._deciding_rule(tag, "on_demand")
        return rule is not None and rule.on_demand

    def on_demand_at(self, tag: str) -> Path:
        """Return the path of the key that decides whether a tag is on demand; empty by default."""
        return self._deciding_rule(tag, "on_demand")[1]

    def is_exclusive(self, tag: str) -> bool:
        """Return whether a worker with this tag runs only requests that require the tag."""
        rule, _ = self._deciding_rule(tag, "exclusive")
        return rule is not None and rule.exclusive

    def asked_by(self, tag: str) -> tuple[Sequence[Asker] | None, Path]:
        """Return the sources that may require a tag (None: all), and the path of the key."""
        rule, path = self._deciding_rule(tag, "asked_by")
        return (rule.asked_by if rule else None), path

    def provided_by(self, tag: str) -> tuple[Sequence[ProvidedBy] | None, Path]:
        """Return the sources that may provide a tag (None: all), and the path of the key."""
        rule, path = self._deciding_rule(tag, "provided_by")
        return (rule.provided_by if rule else None), path

    def _deciding_rule(self, tag: str, key: Key) -> tuple[TagRule | None, Path]:
        for name in self.names_of(tag):
            rule = self.fleet.tags[name]
            if key in rule.model_fields_set:
                return rule, ("tags", name, key)
        return None, ()


class Mention(NamedTuple):
    """A tag in fleet.yaml with its role: required of workers, provided, required of requests."""

    tag: str
    role: Literal["asked", "provided", "required"]
    path: Path


def asking_key(fleet: Fleet, tag: str) -> Path:
    """Return the first key of `powerful` or `derive` that asks for a tag; empty if none does."""
    found = (each.path for each in mentions(fleet) if each.role == "asked" and each.tag == tag)
    return next(found, ())


def mentions(fleet: Fleet) -> Iterator[Mention]:
    """Yield all tags in fleet.yaml with their roles, except templates under `derive`."""
    for number, rule in enumerate(fleet.powerful):
        for place, tag in enumerate(rule.ask):
            yield Mention(tag, "asked", ("powerful", number, "ask", place))
    for number, derived in enumerate(fleet.derive):
        if "{" not in derived.ask:
            yield Mention(derived.ask, "asked", ("derive", number, "ask"))
    for name, image in fleet.images.items():
        for place, tag in enumerate(image.provides):
            yield Mention(tag, "provided", ("images", name, "provides", place))
    for name, pool in fleet.pools.items():
        for place, tag in enumerate(pool.provides):
            yield Mention(tag, "provided", ("pools", name, "provides", place))
        for place, tag in enumerate(pool.requires if isinstance(pool, Pool) else ()):
            yield Mention(tag, "required", ("pools", name, "requires", place))
