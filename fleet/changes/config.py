"""This module names the keys of fleet.yaml that a change edits, whatever comes of them.

What a plan says of pools (`fleet.changes`) is left to it: which came or went, and what of them
is another machine, image, limit or mode.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from fleet.explain.edits import Path, write_value
from fleet.facts.values import Value
from fleet.schema.base import Section
from fleet.schema.model import Fleet

_SAID_OF_POOLS = (
    ("workers", "max"),
    ("mode",),
    ("provider",),
    ("machine",),
    ("image",),
    ("provides",),
)
_MOST = 240
_CLOSED_BY = {"[": "]", "{": "}"}


class ConfigChange(Value):
    """One key of fleet.yaml, or one entry of a list, that a change edits."""

    path: tuple[str | int, ...]
    before: str = Field(description="As fleet.yaml writes it; empty where it was not there.")
    after: str = Field(description="As fleet.yaml writes it; empty where it is gone.")


def find_config_changes(base: Fleet, head: Fleet) -> tuple[ConfigChange, ...]:
    """Return every key that differs, in the order of the reference."""
    return tuple(
        ConfigChange(
            path=path,
            before=_short(write_value(base, path, before)),
            after=_short(write_value(head, path, after)),
        )
        for path, before, after in _differing((), base, head)
        if not _is_said_of_pools(path)
    )


def _differing(path: Path, before: Any, after: Any) -> Iterator[tuple[Path, Any, Any]]:  # noqa: ANN401 - any part of fleet.yaml
    if before == after:
        return
    if isinstance(before, Section) and type(before) is type(after):
        for name in type(before).model_fields:
            yield from _differing((*path, name), getattr(before, name), getattr(after, name))
    elif isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _differing((*path, name), before.get(name), after.get(name))
    elif _are_sections(before) and _are_sections(after):
        gone = [(number, each) for number, each in enumerate(before) if each not in after]
        new = [(number, each) for number, each in enumerate(after) if each not in before]
        yield from (((*path, number), each, None) for number, each in gone)
        yield from (((*path, number), None, each) for number, each in new)
    else:
        yield path, before, after


def _are_sections(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, Section) for each in value)


def _is_said_of_pools(path: Path) -> bool:
    section, *inner = path
    if section != "pools":
        return False
    key = tuple(inner[1:])  # empty where the pool itself came or went
    return not key or any(key[: len(said)] == said for said in _SAID_OF_POOLS)


def _short(text: str) -> str:
    """Return a value that is not too long: cut between entries, with its brackets closed."""
    if len(text) <= _MOST:
        return text
    best, opened, quoted = "", "", False
    for number, letter in enumerate(text[:_MOST]):
        escaped = text[:number].endswith("\\")
        if letter == '"' and not escaped:
            quoted = not quoted
        elif not quoted and letter in _CLOSED_BY:
            opened += _CLOSED_BY[letter]
        elif not quoted and letter in "]}":
            opened = opened[:-1]
        if not quoted and text[number : number + 2] == ", ":
            best = f"{text[:number]}, …{opened[::-1]}"
    return best or f"{text[:_MOST].rpartition(' ')[0] or text[:_MOST]}…"
