"""Edits of a fleet.yaml in memory, and their text.

An edit has a path and a new value. This module does not depend on the purpose of an edit.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil, floor
from typing import Any, get_args

from pydantic.fields import FieldInfo

from fleet.model.prices import convert
from fleet.schema.findings import YAML_WORDS, Path
from fleet.schema.model import ConfigSection, Fleet, Money
from fleet.schema.units import PERCENT_PATTERNS, written

MOST_COUNT = 100_000
MOST_PERCENT = 9_999
MOST_CENTS = 100_000_000
_CENT = Decimal("0.01")
REMOVED = object()
"""The new value in an edit that removes a key."""
REQUEST = ("request",)
"""The path of an edit that adds tags to the request itself, not to fleet.yaml."""


@dataclass(frozen=True)
class Edit:
    """The path of a key of fleet.yaml, and its new value."""

    path: Path
    new: object
    count: int = 1
    """Number of edits that a user would count: two tags in one list are two edits."""
    rank: int = 0
    """Sort key among sets of equally many edits. The lowest is first."""
    text: str = ""
    """The edit as a phrase; empty if path and values are enough."""


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
        rate = convert(fleet, Decimal(1), old.currency)
        if not rate:
            return None
        cents = (old.amount + amount / rate) / _CENT
        steps = ceil(cents) - floor(old.amount / _CENT)
        most = MOST_CENTS
    else:
        steps = ceil(amount)
        most = MOST_PERCENT if _pattern_at(fleet, path) in PERCENT_PATTERNS else MOST_COUNT
        most -= old
    steps = max(1, steps)
    if steps > most:
        return None
    if isinstance(old, Money):
        return Edit(path, Money(amount=old.amount + steps * _CENT, currency=old.currency))
    return Edit(path, old + steps)


def lower_figure(fleet: Fleet, edit: Edit) -> Edit | None:
    """Return the edit with a figure raised by one step less; None if it raises none that far."""
    old, new = value_at(fleet, edit.path), edit.new
    if isinstance(old, Money) and isinstance(new, Money):
        less = Money(amount=new.amount - _CENT, currency=new.currency)
        return replace(edit, new=less) if less.amount > old.amount else None
    is_raised = is_figure(fleet, edit.path) and isinstance(new, int) and new - 1 > old
    return replace(edit, new=new - 1) if is_raised and isinstance(new, int) else None


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


def figures_at(fleet: Fleet, path: Path) -> list[Path]:
    """Return the path itself if its value is a figure, or the paths of figures directly below."""
    value = value_at(fleet, path)
    if isinstance(value, ConfigSection):
        below = [(*path, name) for name in type(value).model_fields]
        return [each for each in below if is_figure(fleet, each)]
    return [path] if is_figure(fleet, path) else []


def _pattern_at(fleet: Fleet, path: Path) -> str:
    """Return the regular expression for a value at a path, such as a percentage; else ""."""
    section = value_at(fleet, path[:-1])
    if isinstance(section, ConfigSection):
        return _pattern_of(type(section).model_fields[str(path[-1])])
    above = value_at(fleet, path[:-2])
    if isinstance(section, dict) and isinstance(above, ConfigSection):
        _, of_value = get_args(type(above).model_fields[str(path[-2])].annotation)
        return next(_patterns([of_value]), "")
    return ""


def _pattern_of(field: FieldInfo) -> str:
    return next(_patterns([*field.metadata, field.annotation]), "")


def _patterns(parts: Iterable[object]) -> Any:  # noqa: ANN401 - an iterator of text
    for part in parts:
        pattern = getattr(part, "pattern", None)
        if isinstance(pattern, str):
            yield pattern
        yield from _patterns([*get_args(part), *getattr(part, "__metadata__", ())])


def write_value(fleet: Fleet, path: Path, value: object) -> str:
    """Format a value in one line, in the notation of fleet.yaml for this path."""
    return "" if value is None or value is REMOVED else _write(value, _pattern_at(fleet, path))


def _write(value: object, pattern: str = "") -> str:
    if isinstance(value, ConfigSection):
        fields = type(value).model_fields
        parts = (
            f"{name}: {_write(getattr(value, name), _pattern_of(fields[name]))}"
            for name in fields
            if name in value.model_fields_set
        )
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(_write(each, pattern) for each in value)}]"
    if isinstance(value, int | Money) and not isinstance(value, bool) and pattern:
        return written(value, pattern)
    if isinstance(value, str):
        return value if value.replace("-", "").isalpha() else json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_yaml(fleet: Fleet, edit: Edit) -> str:
    """Return an edit as YAML, from the top level or for an entry of a list; empty if removed."""
    if edit.new is REMOVED:
        return ""
    text = write_value(fleet, edit.path, edit.new)
    last = len(edit.path) - 1
    for number, step in reversed([*enumerate(edit.path)]):
        if isinstance(step, int):
            if number < last:
                return text
            text = f"[{text}]"
            continue
        text = f"{_key(step)}: {text}"
        if number and isinstance(edit.path[number - 1], str):
            text = f"{{{text}}}"
    return text


def _key(step: str) -> str:
    is_plain = step.replace("-", "").replace("_", "").isalnum() and step[0].isalpha()
    return step if is_plain and step.lower() not in YAML_WORDS else json.dumps(step)
