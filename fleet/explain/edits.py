"""Edits of a fleet.yaml in memory, their text, and the differences between two versions.

An edit has a path and a new value. This module does not depend on the purpose of an edit.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from math import ceil
from typing import Any, NamedTuple

from pydantic import Field

from fleet.model.prices import convert
from fleet.model.values import Value, later
from fleet.schema.findings import YAML_WORDS, Path
from fleet.schema.model import Fleet, Money
from fleet.schema.units import AS_WRITTEN, ConfigSection
from fleet.words import answers

MOST_COUNT = 100_000
MOST_PERCENT = 9_999
MOST_CENTS = 100_000_000
_CENT = Decimal("0.01")
REMOVED = object()
"""The new value in an edit that removes a key."""
REQUEST = ("request",)
"""The path of an edit that adds tags to the request itself, not to fleet.yaml."""
ALLOW, EXPIRY, APPROVE, RULE, ASK, CLAIM, OPEN, REMOVE = range(8)
"""Ranks of edits: raise a limit or set a mode, postpone an expiry, approve, add an allow-list
rule, have the request require a tag, declare a provided tag, permit more requests, remove a key.
"""


@dataclass(frozen=True)
class Edit:
    """The path of a key of fleet.yaml, and its new value."""

    path: Path
    new: object
    rank: int = ALLOW
    """Sort key among sets of equally many edits. The lowest is first."""


Edits = tuple[Edit, ...]


def size_of_edits(fleet: Fleet, edits: Edits) -> tuple[int, int]:
    """Return the number of edits (two tags in one list count twice) and the sum of their ranks."""
    counts = (max(1, *map(len, _compare_lists(fleet, edit))) for edit in edits)
    return sum(counts), sum(edit.rank for edit in edits)


def _compare_lists(fleet: Fleet, edit: Edit) -> tuple[list[object], list[object]]:
    """Return the added and the removed entries of a list; both empty for another value."""
    old, new = value_at(fleet, edit.path) or [], edit.new
    if not isinstance(new, list | tuple) or not isinstance(old, list | tuple):
        return [], []
    return [each for each in new if each not in old], [each for each in old if each not in new]


def describe_edits(fleet: Fleet, edits: Edits) -> str:
    """Return edits as a phrase, with old and new values."""
    return ", and ".join(_describe(fleet, edit) for edit in edits)


def _describe(fleet: Fleet, edit: Edit) -> str:
    path, (added, gone) = edit.path, _compare_lists(fleet, edit)
    is_claim = edit.rank == CLAIM
    if path == REQUEST:
        return answers.ask_for_tags([str(each) for each in added])
    if isinstance(path[-1], int):
        path, added = path[:-1], [edit.new]
    if added or gone:

        def name(entry: object) -> str:
            return entry if isinstance(entry, str) else write_value(fleet, (*path, 0), entry)

        named = (list(map(name, entries)) for entries in (added, gone))
        return answers.describe_list_edit(path, *named, is_claim=is_claim)
    values = (write_value(fleet, path, each) for each in (value_at(fleet, path), edit.new))
    is_raise = is_figure(fleet, path)
    return answers.describe_edit(path, *values, is_raise=is_raise, is_claim=is_claim)


def is_figure(fleet: Fleet, path: Path) -> bool:
    """Return whether the value at a path is a number or an amount of money."""
    value = value_at(fleet, path)
    return not isinstance(value, bool) and isinstance(value, int | Money)


def raise_figure(fleet: Fleet, path: Path, amount: Decimal) -> Edit | None:
    """Return the edit that raises a figure by at least an amount; None if impossible.

    An amount of money is in the currency of fleet.yaml (`money.currency`).
    """
    old = value_at(fleet, path)
    if not is_figure(fleet, path):
        return None
    if isinstance(old, Money):
        rate, most = convert(fleet, Decimal(1), old.currency), MOST_CENTS
        if not rate:
            return None
        amount = amount / rate / _CENT
    else:
        is_percent = write_value(fleet, path, old).endswith("%")
        most = (MOST_PERCENT if is_percent else MOST_COUNT) - old
    steps = max(1, ceil(amount))
    return Edit(path, _add_steps(old, steps)) if steps <= most else None


def lower_figure(fleet: Fleet, edit: Edit) -> Edit | None:
    """Return the edit with a figure raised by one step less; None if it raises none that far."""
    if not is_figure(fleet, edit.path) or edit.new == _add_steps(value_at(fleet, edit.path), 1):
        return None
    return replace(edit, new=_add_steps(edit.new, -1))


def _add_steps(value: Any, steps: int) -> Any:  # noqa: ANN401 - a number or money
    """Return a figure that is changed by a number of its smallest steps."""
    if isinstance(value, Money):
        return Money(amount=value.amount + steps * _CENT, currency=value.currency)
    return value + steps


def apply_edits(fleet: Fleet, edits: Iterable[Edit]) -> Fleet:
    """Return a copy of the fleet with these edits."""
    for edit in edits:
        fleet = _replace_at(fleet, edit.path, edit.new)
    return fleet


def _replace_at(value: Any, path: Path, new: object) -> Any:  # noqa: ANN401 - any part of fleet.yaml
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, ConfigSection):
        name = str(step)
        if new is REMOVED and not rest:
            kept = {key: getattr(value, key) for key in value.model_fields_set - {name}}
            return type(value).model_construct(**kept)
        return value.model_copy(update={name: _replace_at(getattr(value, name), rest, new)})
    if isinstance(value, dict) or (value is None and isinstance(step, str)):
        value = value or {}
        if new is REMOVED and not rest:
            return {key: each for key, each in value.items() if key != step}
        return {**value, step: _replace_at(value.get(step), rest, new)}
    place = int(step)
    inner = value[place] if place < len(value) else None
    return [*value[:place], _replace_at(inner, rest, new), *value[place + 1 :]]


def value_at(fleet: Fleet, path: Path) -> Any:  # noqa: ANN401 - any part of fleet.yaml
    """Return the value at a path of fleet.yaml; None if absent."""
    value: Any = fleet
    for step in path:
        if isinstance(value, ConfigSection):
            value = getattr(value, str(step), None)
        elif isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def write_value(fleet: Fleet, path: Path, value: object) -> str:
    """Format a value in one line, in the notation of fleet.yaml for this path."""
    return "" if value is None or value is REMOVED else _write(_dump_at(fleet, path, value))


def write_yaml(fleet: Fleet, edit: Edit) -> str:
    """Return an edit as YAML, from the top level or for an entry of a list; empty if removed."""
    if edit.new is REMOVED:
        return ""
    entries = [number for number, step in enumerate(edit.path[:-1]) if isinstance(step, int)]
    first, *inner = edit.path[entries[-1] + 1 if entries else 0 :]
    value = _nest(_dump_at(fleet, edit.path, edit.new), inner)
    return f"{_write_key(str(first))}: {_write(value)}"


def _dump_at(fleet: Fleet, path: Path, value: object) -> Any:  # noqa: ANN401 - plain data
    """Return a value for a path as plain data, with the units of fleet.yaml."""
    above = [n for n in range(len(path)) if isinstance(value_at(fleet, path[:n]), ConfigSection)]
    name, *inner = path[above[-1] :]
    section = value_at(fleet, path[: above[-1]])
    edited = section.model_copy(update={name: _nest(value, inner)})
    found = edited.model_dump(
        include={name}, exclude_unset=True, context=AS_WRITTEN, warnings=False
    )[name]
    for step in inner:
        found = found[0 if isinstance(step, int) else step]
    return found


def _nest(value: object, path: Sequence[str | int]) -> object:
    for step in reversed(path):
        value = [value] if isinstance(step, int) else {step: value}
    return value


_PLAIN = re.compile(
    r"[A-Za-z-]+|[0-9]+(\.[0-9]+)?(%|[A-Za-z]+| [A-Z]{3}(/h)?)|[0-9]{4}-[0-9]{2}-[0-9]{2}"
)
"""Words, amounts with a unit, and dates, which need no quotes in YAML."""


def _write(value: object) -> str:
    if isinstance(value, dict):
        pairs = (f"{_write_key(key)}: {_write(each)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_write, value))}]"
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _write_key(step: str) -> str:
    is_plain = step.replace("-", "").replace("_", "").isalnum() and step[0].isalpha()
    return step if is_plain and step.lower() not in YAML_WORDS else json.dumps(step)


_COMPARED_IN_POOLS = (
    ("workers", "max"),
    ("mode",),
    ("provider",),
    ("machine",),
    ("image",),
    ("provides",),
)
_MAX_LENGTH = 400


class ChangedEntries(Value):
    """The entries of a list that only one of both values has; empty for other values."""

    added: tuple[str, ...] = later((), "Entries of a list that only the value after has.")
    removed: tuple[str, ...] = later((), "Entries of a list that only the value before has.")


def compare_entries(before: Collection[str], after: Collection[str]) -> dict[str, Any]:
    """Return the fields of `ChangedEntries`, in the order of the lists."""
    return {
        "added": tuple(each for each in after if each not in before),
        "removed": tuple(each for each in before if each not in after),
    }


class ConfigChange(ChangedEntries):
    """A key of fleet.yaml, or an entry of a list, that a change edits, as text."""

    path: tuple[str | int, ...]
    before: str = Field(description="Value before, as written in fleet.yaml; empty: absent.")
    after: str = Field(description="Value after, as written in fleet.yaml; empty: removed.")


class Edited(NamedTuple):
    """An edited key or list entry with the values before and after; None if absent."""

    path: Path
    before: Any
    after: Any


@dataclass(frozen=True)
class FleetEdits:
    """The differences between two versions of fleet.yaml, `base` and `head`."""

    base: Fleet
    head: Fleet

    @cached_property
    def found(self) -> tuple[Edited, ...]:
        """Return every edited key, in the order of the reference page of fleet.yaml."""
        return tuple(differing((), self.base, self.head))

    def write(self, edited: Edited) -> tuple[str, str]:
        """Return both values in the notation of fleet.yaml: shortened if long, empty if absent."""
        before = write_value(self.base, edited.path, edited.before)
        return _shorten(before), _shorten(write_value(self.head, edited.path, edited.after))

    def entries(self, edited: Edited) -> dict[str, Any]:
        """Return the entries of two lists that only one of them has; empty for other values."""
        if not isinstance(edited.before, list) or not isinstance(edited.after, list):
            return {}
        sides = ((self.base, edited.before), (self.head, edited.after))
        return compare_entries(
            *(
                [write_value(fleet, edited.path, each) for each in entries]
                for fleet, entries in sides
            )
        )


def find_config_changes(edits: FleetEdits) -> tuple[ConfigChange, ...]:
    """Return the edited keys except those of pools. `PoolChange` compares the keys of pools."""
    return tuple(
        ConfigChange(path=edited.path, before=before, after=after, **edits.entries(edited))
        for entry in edits.found
        for edited in differing(*entry)  # the keys of a replaced entry of a list
        # The path of an added or removed pool has no key.
        if edited.path[0] != "pools"
        or (
            (key := edited.path[2:])
            and all(key[: len(each)] != each for each in _COMPARED_IN_POOLS)
        )
        for before, after in [edits.write(edited)]
    )


def differing(path: Path, before: Any, after: Any) -> Iterator[Edited]:  # noqa: ANN401 - any part of fleet.yaml
    """Yield each key that differs between two values. `path` is the path of both values."""
    if before == after:
        return
    if isinstance(before, ConfigSection) and type(before) is type(after):
        for name in type(before).model_fields:
            yield from differing((*path, name), getattr(before, name), getattr(after, name))
    elif isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from differing((*path, name), before.get(name), after.get(name))
    elif _are_sections(before) and _are_sections(after):
        # Compare texts, because comparing all pairs takes seconds for a thousand entries.
        there, here = set(map(repr, before)), set(map(repr, after))
        gone = {number: each for number, each in enumerate(before) if repr(each) not in here}
        new = {number: each for number, each in enumerate(after) if repr(each) not in there}
        for number in sorted(gone.keys() | new.keys()):
            yield Edited((*path, number), gone.get(number), new.get(number))
    else:
        yield Edited(path, before, after)


def _are_sections(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, ConfigSection) for each in value)


def _shorten(text: str) -> str:
    """Cut a long value after an entry, else after a word."""
    if len(text) <= _MAX_LENGTH:
        return text
    cut = text[:_MAX_LENGTH]
    entries, comma, _ = cut.rpartition(", ")
    return f"{entries}, …" if comma else f"{cut.rpartition(' ')[0] or cut}…"
