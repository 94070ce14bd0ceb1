"""This module finds patterns that RE2 does not take, and where they go wrong."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fleet.schema.findings import Finding, Path, as_written
from fleet.schema.model import Fleet

if TYPE_CHECKING:
    # Nothing of tags is loaded for a file without an allow-list.
    from fleet.tagrules.allow import BadPattern

_CLASS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]?", re.DOTALL)
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")
_REFERENCE = re.compile(r"\\[1-9]|\(\?P=")
_IN_CLASS = "invalid character class range"
_WORDS = {
    "missing )": ("this group is not closed", r"close it, or write \( for the character"),
    "missing ]": ("this class is not closed", r"close it, or write \[ for the character"),
    "unexpected )": ("this closes no group", r"remove it, or write \) for the character"),
    "trailing \\": ("nothing follows this backslash", r"write \\ for the character"),
    "no argument for repetition operator": (
        "there is nothing before this to repeat",
        "a pattern is no shell glob: .* stands for anything",
    ),
    "bad repetition operator": ("this repeats a repeat", "keep one of them; RE2 never backtracks"),
    "invalid repetition size": (
        "this repeats too often",
        "at most 1000 times, nested repeats multiplied",
    ),
    "invalid escape sequence": (
        "this backslash means nothing",
        "leave it out: only punctuation needs one",
    ),
    "invalid perl operator": ("RE2 has no such group", "use (?:…), (?i) or (?P<name>…)"),
    "invalid named capture group": ("this name of a group is wrong", "write (…) without a name"),
    _IN_CLASS: ("this is no range of characters", "write the lower character first, as in a-z"),
    "pattern too large - compile failed": (
        "it takes too much memory",
        "write it shorter, with smaller repeats",
    ),
}


def invalid_pattern(fleet: Fleet) -> Iterator[Finding]:
    """Require that every pattern is one that RE2 takes."""
    patterns = list(_patterns(fleet))
    if not patterns:
        return
    from fleet.tagrules.allow import BadPattern, compile_pattern

    for pattern, path in patterns:
        try:
            compile_pattern(pattern)
        except BadPattern as bad:
            error = _named_reference(pattern) or bad
            message, hint = _explained(error)
            yield Finding("invalid-pattern", message, path, hint=hint, part=_part(pattern, error))


def _patterns(fleet: Fleet) -> Iterator[tuple[str, Path]]:
    """Yield every pattern of the allow-list and of `durations`, and where it stands."""
    for number, rule in enumerate(fleet.powerful):
        yield rule.match, ("powerful", number, "match")
    for task, stated in fleet.durations.items():
        for number, each in enumerate(stated if isinstance(stated, list) else ()):
            if each.match is not None:
                yield each.match, ("durations", task, number, "match")


def _explained(error: "BadPattern") -> tuple[str, str]:
    if _LOOK_AROUND.match(error.part):
        return (
            f"{as_written(error.part)} looks around, which RE2 cannot",
            "write what the name may be; keep what it may not be as a case under rejects",
        )
    if _REFERENCE.match(error.part):
        return (
            f"{as_written(error.part)} refers back to a group, which RE2 cannot",
            "write the text out a second time",
        )
    message, hint = _WORDS.get(error.reason, (error.reason, "see docs/reference/allow-list.md"))
    return f"not an RE2 pattern: {message}", hint


def _named_reference(pattern: str) -> "BadPattern | None":
    """Return what RE2 says only half of: it names the beginning of any (?P that it refuses."""
    from fleet.tagrules.allow import BadPattern

    found = "(?P=" in _without_classes(pattern, "")
    return BadPattern("invalid perl operator", "(?P=") if found else None


def _part(pattern: str, error: "BadPattern") -> tuple[int, int] | None:
    """Return the characters that RE2 complains of; it names them, not where they stand."""
    match error.reason:
        case "missing )":
            return _unpaired(pattern, "(")
        case "unexpected )":
            return _unpaired(pattern, ")")
        case "missing ]":
            return _at(len(pattern) - len(error.part), 1)
        case "trailing \\":
            return _at(len(pattern) - 1, 1)
    plain = pattern if error.reason == _IN_CLASS else _without_classes(pattern, error.part)
    start = plain.find(error.part) if error.part else -1
    return None if start < 0 else _at(start, len(error.part))


def _at(start: int, length: int) -> tuple[int, int]:
    return start, start + length


def _unpaired(pattern: str, bracket: str) -> tuple[int, int] | None:
    """Return the first bracket that closes nothing, or the last one that nothing closes."""
    opened: list[int] = []
    for place, character in enumerate(_without_classes(pattern, "")):
        if character == "(":
            opened.append(place)
        elif character == ")" and opened:
            opened.pop()
        elif character == ")":
            return _at(place, 1)
    return _at(opened[-1], 1) if opened and bracket == "(" else None


def _without_classes(pattern: str, sought: str) -> str:
    """Return a pattern with classes and escaped characters blanked, place for place."""

    def blank(found: re.Match[str]) -> str:
        kept = bool(sought) and found[0].startswith("\\") and sought.startswith(found[0])
        return found[0] if kept else " " * len(found[0])

    return _CLASS.sub(blank, pattern)
