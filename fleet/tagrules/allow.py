"""Match requests with the allow-list, the rules of `powerful`.

Patterns are RE2, so that none can hang fleet, and match whole names. Every rule that matches
applies, in the order of the file, until its last day is over.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from fleet.schema.model import Fleet, PowerfulRule
from fleet.schema.rules import SOURCE_CHROOT
from fleet.tagrules.names import (
    ANY_ARCHITECTURE,
    PARTS,
    SOURCE_ARCHITECTURE,
    Recorded,
    is_source_build,
    names_of,
    recorded_names,
    without_directory,
)

if TYPE_CHECKING:
    from fleet.model.facts import Request

PATTERN_MEMORY = 256 << 10
"""Bytes that one compiled pattern may take; a larger one is refused."""
_SET_MEMORY = 64 << 20
_CACHED = 8192


@dataclass(frozen=True)
class RuleMatch:
    """A rule of the allow-list, its index in `powerful`, and the name that it matches."""

    index: int
    rule: PowerfulRule
    name: str


class Pattern:
    """A compiled pattern."""

    def __init__(self, compiled: "_Compiled") -> None:
        self._compiled = compiled

    def takes(self, name: str) -> bool:
        """Say whether the pattern matches a whole name."""
        return self._compiled.fullmatch(_encoded(name)) is not None

    def takes_beginning(self, name: str) -> str:
        """Return the start of a name that matches; empty if none does."""
        found = self._compiled.match(_encoded(name))
        return "" if found is None else found.group().decode("utf-8", "replace")


class BadPattern(Exception):
    """A text that is not an RE2 pattern: RE2's message, and the part that it is about."""

    def __init__(self, reason: str, part: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.part = part


@lru_cache(maxsize=_CACHED)
def compile_pattern(text: str) -> Pattern:
    """Return a pattern ready to use; raises BadPattern."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY
    try:
        return Pattern(re2.compile(_encoded(text), options))
    except re2.error as error:
        message = error.args[0] if error.args else b""
        text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        reason, _, part = text.partition(": ")
        raise BadPattern(reason, part) from None


def is_valid(rule: PowerfulRule) -> bool:
    """Say whether the pattern of a rule is valid RE2."""
    try:
        compile_pattern(rule.match)
    except BadPattern:
        return False
    return True


def matches_name(rule: PowerfulRule, name: str) -> bool:
    """Say whether a rule matches a name, even if it expired; raises BadPattern."""
    pattern = compile_pattern(rule.match)
    plain = without_directory(name) if rule.dirs else name
    return pattern.takes(name) or (plain != name and pattern.takes(plain))


def is_expired(rule: PowerfulRule, today: date) -> bool:
    """Say whether a rule's last day is over."""
    return rule.expires is not None and rule.expires < today


def rules_for(fleet: Fleet, request: "Request", today: date) -> tuple[RuleMatch, ...]:
    """Return every rule that applies to a request today, in the order of the file."""
    found = [match for name in names_of(request) for match in rules_for_name(fleet, name, today)]
    return tuple(sorted(found, key=lambda match: match.index))


def rules_for_name(fleet: Fleet, name: str, today: date) -> tuple[RuleMatch, ...]:
    """Return every rule that applies to a name today: the specification of AllowList."""
    return tuple(
        RuleMatch(index, rule, name)
        for index, rule in enumerate(fleet.powerful)
        if not is_expired(rule, today) and is_valid(rule) and matches_name(rule, name)
    )


class PatternSet:
    """Valid patterns that are tried all at once, as one automaton.

    If that takes too much memory, each pattern is tried by itself, with the same result.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = patterns
        self._together = _compile_set(patterns)

    @property
    def is_slow(self) -> bool:
        """Say whether the patterns are tried one by one."""
        return self._together is None

    def takers(self, name: str) -> list[int]:
        """Return the indices of the patterns that match a name, sorted."""
        found = self._together.Match(_encoded(name)) if self._together else None
        if found and len(self._patterns) in found:
            return sorted(found)[:-1]
        tried = enumerate(self._patterns)
        return [number for number, text in tried if compile_pattern(text).takes(name)]


class AllowList:
    """The rules that have not expired on a day, compiled once for many names."""

    def __init__(self, fleet: Fleet, today: date) -> None:
        self._rules = [
            (index, rule)
            for index, rule in enumerate(fleet.powerful)
            if not is_expired(rule, today) and is_valid(rule)
        ]
        self._patterns = PatternSet([rule.match for _, rule in self._rules])

    def rules_for(self, request: "Request") -> tuple[RuleMatch, ...]:
        """Return every rule that applies to a request, in the order of the file."""
        found = [match for name in names_of(request) for match in self.rules_for_name(name)]
        return tuple(sorted(found, key=lambda match: match.index))

    def rules_for_name(self, name: str) -> tuple[RuleMatch, ...]:
        """Return every rule that applies to a name, in the order of the file."""
        return tuple(RuleMatch(*self._rules[place], name) for place in self._places(name))

    def count_names(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Return the names that each rule matches, by the rule's index in `powerful`."""
        found: dict[int, list[str]] = {index: [] for index, _ in self._rules}
        for name in names:
            for place in self._places(name):
                found[self._rules[place][0]].append(name)
        return found

    def _places(self, name: str) -> Sequence[int]:
        places = self._patterns.takers(name)
        if ":" in name and (plain := without_directory(name)) != name:
            more = [n for n in self._patterns.takers(plain) if self._rules[n][1].dirs]
            places = sorted({*places, *more})
        return places


class _Found(Protocol):
    """The part of RE2's match that is used."""

    def group(self) -> bytes:
        """Return what matched."""


class _Compiled(Protocol):
    """The part of RE2's pattern that is used."""

    def fullmatch(self, text: bytes) -> _Found | None:
        """Return something where the whole text matches."""

    def match(self, text: bytes) -> _Found | None:
        """Return something where the beginning of the text matches."""


class _Set(Protocol):
    """The part of RE2's set of patterns that is used."""

    def Match(self, text: bytes) -> list[int] | None:  # noqa: N802 - the library's own name
        """Return the numbers of the patterns that match."""


def _compile_set(patterns: Sequence[str]) -> _Set | None:
    """Return all patterns as one set, with a last one that matches everything.

    RE2 reports no error if it runs out of memory while matching; the last one is missing then.
    """
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _SET_MEMORY
    together = re2.Set.FullMatchSet(options)
    try:
        for pattern in (*patterns, "(?s).*"):
            together.Add(_encoded(pattern))
        together.Compile()
    except re2.error:
        return None
    compiled: _Set = together
    return compiled


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


__all__ = [
    "ANY_ARCHITECTURE",
    "PARTS",
    "SOURCE_ARCHITECTURE",
    "SOURCE_CHROOT",
    "AllowList",
    "BadPattern",
    "Pattern",
    "Recorded",
    "RuleMatch",
    "compile_pattern",
    "is_expired",
    "is_source_build",
    "is_valid",
    "matches_name",
    "names_of",
    "recorded_names",
    "rules_for",
    "rules_for_name",
    "without_directory",
]
