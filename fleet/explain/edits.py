"""This module changes a fleet.yaml as a value: what a person would write, and what comes of it.

An edit names a path and its new value; a knob is a figure that may be turned up step by step.
Nothing here knows why an edit is made.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, get_args

from fleet.schema.model import Approval, Fleet, Money, Section
from fleet.schema.units import PERCENT_PATTERNS, written

Path = tuple[str | int, ...]

MOST_COUNT = 100_000
MOST_PERCENT = 9_999
MOST_CENTS = 100_000_000
MOST_DAYS = 3_650
_CENT = Decimal("0.01")


class Removed:
    """The new value of a key that is taken out."""

    def __repr__(self) -> str:
        """Return what a person reads."""
        return "(removed)"


REMOVED = Removed()


@dataclass(frozen=True)
class Knob:
    """A figure that may be turned up: how far, and what each step of it is."""

    least: object
    """The value before the first step."""
    most: int

    def value(self, steps: int) -> object:
        """Return the figure after so many steps up."""
        match self.least:
            case Money(amount=amount, currency=currency):
                return Money(amount=amount + steps * _CENT, currency=currency)
            case Approval() as approval:
                return approval.model_copy(update={"count": approval.count + steps})
            case date():
                return self.least + timedelta(days=steps)
            case int():
                return self.least + steps
        raise TypeError(self.least)


@dataclass(frozen=True)
class Edit:
    """One key of fleet.yaml with another value."""

    path: Path
    new: object
    count: int = 1
    """How many edits a person would call it: two tags in one list are two."""
    rank: int = 0
    """Of edits that are as few, what to try and to say first."""
    says: str = ""
    """What to do, in words; empty where the path and the two values say it."""
    knob: Knob | None = None
    steps: int = 0
    """How many steps its knob was turned up."""

    def turned(self, steps: int) -> "Edit":
        """Return the same edit with its knob turned up this far."""
        if self.knob is None:
            raise TypeError(self.path)
        return replace(self, new=self.knob.value(steps), steps=steps)


def turn_up(fleet: Fleet, path: Path) -> Edit | None:
    """Return the edit that raises a figure as far as it goes; None where there is none."""
    old = value_at(fleet, path)
    if isinstance(old, bool) or not isinstance(old, int | Money):
        return None
    if isinstance(old, Money):
        most = MOST_CENTS
    elif _pattern_at(fleet, path) in PERCENT_PATTERNS:
        most = MOST_PERCENT - old
    else:
        most = MOST_COUNT - old
    return Edit(path, old, knob=Knob(old, most)).turned(most) if most > 0 else None


def apply_edits(fleet: Fleet, edits: Iterable[Edit]) -> Fleet:
    """Return the fleet as these edits make it."""
    for edit in edits:
        fleet = _changed(fleet, edit.path, edit.new)
    return fleet


def _changed(value: Any, path: Path, new: object) -> Any:  # noqa: ANN401 - any part of fleet.yaml
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(value, Section):
        name = str(step)
        if new is REMOVED and not rest:
            kept = {key: getattr(value, key) for key in value.model_fields_set - {name}}
            return type(value).model_construct(**kept)
        return value.model_copy(update={name: _changed(getattr(value, name), rest, new)})
    if isinstance(value, dict):
        if new is REMOVED and not rest:
            return {key: each for key, each in value.items() if key != step}
        return {**value, step: _changed(value.get(step), rest, new)}
    place = int(step)
    inner = value[place] if place < len(value) else None
    return [*value[:place], _changed(inner, rest, new), *value[place + 1 :]]


def value_at(fleet: Fleet, path: Path) -> Any:  # noqa: ANN401 - any part of fleet.yaml
    """Return what stands at a path; None where nothing does."""
    value: Any = fleet
    for step in path:
        if isinstance(value, Section):
            value = getattr(value, str(step), None)
        elif isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def figures_at(fleet: Fleet, path: Path) -> list[Path]:
    """Return the figures that a path names: itself, or those that are set directly below it."""
    value = value_at(fleet, path)
    if isinstance(value, Section):
        below = [(*path, name) for name in type(value).model_fields]
        return [each for each in below if turn_up(fleet, each)]
    return [path] if turn_up(fleet, path) else []


def _pattern_at(fleet: Fleet, path: Path) -> str:
    """Return the pattern by which fleet.yaml writes a value; empty where it is a plain one."""
    section = value_at(fleet, path[:-1])
    if isinstance(section, Section):
        field = type(section).model_fields[str(path[-1])]
        return next(_patterns([*field.metadata, field.annotation]), "")
    above = value_at(fleet, path[:-2])
    if isinstance(section, dict) and isinstance(above, Section):
        _, of_value = get_args(type(above).model_fields[str(path[-2])].annotation)
        return next(_patterns([of_value]), "")
    return ""


def _patterns(parts: Iterable[object]) -> Any:  # noqa: ANN401 - an iterator of text
    for part in parts:
        pattern = getattr(part, "pattern", None)
        if isinstance(pattern, str):
            yield pattern
        yield from _patterns([*get_args(part), *getattr(part, "__metadata__", ())])


def write_value(fleet: Fleet, path: Path, value: object) -> str:
    """Return a value the way fleet.yaml writes it at a path, on one line."""
    pattern = _pattern_at(fleet, path)
    if isinstance(value, int | Money) and pattern:
        return written(value, pattern)
    return "" if value is None or value is REMOVED else _write(value)


def _write(value: object) -> str:
    if isinstance(value, Section):
        said = [name for name in type(value).model_fields if name in value.model_fields_set]
        parts = (f"{name}: {_write(getattr(value, name))}" for name in said)
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_write, value))}]"
    if isinstance(value, str):
        return value if value.replace("-", "").isalpha() else json.dumps(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_yaml(fleet: Fleet, edit: Edit) -> str:
    """Return what to write: from the top of the file, or within the entry of a list."""
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
    return step if step.replace("-", "").replace("_", "").isalnum() else json.dumps(step)
