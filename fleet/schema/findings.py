"""Findings: errors and warnings about a fleet.yaml, with positions and hints."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from posixpath import commonprefix
from typing import Literal

Path = tuple[str | int, ...]
Severity = Literal["error", "warning"]
At = Literal["value", "key"]

IN_POOL = " (in pool "
"""Text before the name of the pool, in a message about a template that the pool extends."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")


@dataclass(frozen=True)
class Span:
    """A range of characters in a file, counted from 1. The end is after the last character."""

    file: str
    line: int = 1
    column: int = 1
    end_line: int = 1
    end_column: int = 1

    def __str__(self) -> str:
        """Return FILE:LINE:COLUMN, a format that editors and terminals can open."""
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Finding:
    """An error or warning with a hint; `span` is None until a document sets the position.

    `part` is the (start, end) of the wrong characters in the value, counted from 0; None: all.
    """

    rule: str
    message: str
    path: Path = ()
    severity: Severity = "error"
    at: At = "value"
    hint: str = ""
    span: Span | None = None
    part: tuple[int, int] | None = None


def wrong(
    message: str,
    path: Path,
    *,
    hint: str = "",
    at: At = "value",
    part: tuple[int, int] | None = None,
) -> Finding:
    """Return an error of a check, to which `check_all` adds the id of the rule."""
    return Finding("", message, path, at=at, hint=hint, part=part)


def unwise(
    message: str,
    path: Path,
    *,
    hint: str = "",
    at: At = "value",
    part: tuple[int, int] | None = None,
) -> Finding:
    """Return a warning of a check, to which `check_all` adds the id of the rule."""
    return Finding("", message, path, "warning", at, hint, part=part)


@dataclass(frozen=True)
class Report:
    """The findings in the format of the JSON output."""

    findings: tuple[Finding, ...]
    format: Literal["fleet-findings-1"] = "fleet-findings-1"


YAML_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
"""Words, in lower case, that YAML parsers do not read as text unless they are in quotes."""


def yaml_key(path: Sequence[str | int]) -> str:
    """Return the path of a key of fleet.yaml with dots. Special characters are in quotes."""
    text = "".join(
        f"[{part}]"
        if isinstance(part, int)
        else f".{part}"
        if _BARE_KEY.match(part)
        else f'."{part}"'
        for part in path
    )
    return text.removeprefix(".")


def in_order(findings: Iterable[Finding], main: str) -> tuple[Finding, ...]:
    """Return findings without duplicates, sorted by position, with the main file first."""

    def position(finding: Finding) -> tuple[object, ...]:
        span = finding.span or Span(main)
        place = (span.file != main, span.file, span.line, span.column)
        return (*place, finding.severity, finding.rule, finding.message)

    return tuple(sorted(_remove_duplicates(findings), key=position))


def _remove_duplicates(findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield one finding per position and message. Aliases and templates cause duplicates."""
    alike: dict[object, list[Finding]] = {}
    for finding in findings:
        message = finding.message.partition(IN_POOL)[0]
        path = () if finding.span else finding.path
        alike.setdefault(replace(finding, message=message, path=path), []).append(finding)
    for first, *others in alike.values():
        more = len({each.path[:2] for each in others} - {first.path[:2]})
        message = f"{first.message.removesuffix(')')} and {more} more)"
        yield replace(first, message=message) if more and IN_POOL in first.message else first


def has_errors(findings: Iterable[Finding]) -> bool:
    """Return whether a finding is an error."""
    return any(finding.severity == "error" for finding in findings)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word that is most similar to a word; empty if no word is similar."""
    import difflib

    word = word.lower()[:100]
    candidates = _find_neighbours(word, _index_lower_case(tuple(known)))
    close = difflib.get_close_matches(word, candidates, n=3, cutoff=0.6)
    if not close:
        return ""
    # Among equally similar words, prefer the longest common prefix.
    best = max(
        sorted(close),
        key=lambda each: (
            difflib.SequenceMatcher(None, each, word).ratio(),
            len(commonprefix([each, word])),
        ),
    )
    return candidates[best]


_MAX_COMPARED = 50
"""Maximum number of known words that are compared with one word, so that checks stay fast."""


@lru_cache(maxsize=8)
def _index_lower_case(known: tuple[str, ...]) -> dict[str, str]:
    """Map lower-case words to known words, sorted. Cached, since the known words rarely differ."""
    return dict(sorted({each.lower(): each for each in sorted(known)}.items()))


def _find_neighbours(word: str, candidates: dict[str, str]) -> dict[str, str]:
    """Return the candidates that are alphabetically next to a word, or all if there are few."""
    if len(candidates) <= _MAX_COMPARED:
        return candidates
    words = [*candidates]
    at = bisect_left(words, word)
    first = max(0, at - _MAX_COMPARED // 2)
    return {each: candidates[each] for each in words[first : first + _MAX_COMPARED]}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint with the most similar known word, or with all if no word is similar."""
    names = sorted(known)
    close = nearest(word, names)
    if close:
        return f"did you mean '{close}'?"
    return f"known: {', '.join(names)}" if names else ""


MAX_LISTED = 20
"""Maximum length of a list of names in a sentence. Real requests have fewer tags."""


def some_of(
    names: Sequence[str], *, total: int | None = None, shown: int = 3, between: str = ", "
) -> str:
    """Format the first `shown` names, and the number of the remaining names."""
    count = max(len(names), total or 0)
    if len(names) == count == shown + 1:
        shown = count  # the last name is not longer than "and 1 more"
    first = between.join(names[:shown])
    rest = count - min(len(names), shown)
    if not first:
        return f"{rest:,} more" if rest else ""
    return f"{first} and {rest:,} more" if rest else first


def listed(names: Sequence[str], *, between: str = ", ") -> str:
    """Format a list of names. A long list becomes the first names and a count of the others."""
    return some_of(names, shown=MAX_LISTED, between=between)


def quoted(value: object) -> str:
    """Format a value for a message: short, in one line, without control characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[-1]  # noqa: PLR2004 - fits on a line


def as_written(pattern: str) -> str:
    """Format a regular expression for a message: short, without doubled backslashes."""
    return quoted(pattern).replace("\\\\", "\\")
