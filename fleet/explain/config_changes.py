"""Find the keys of fleet.yaml that a change edits."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import Field

from fleet.explain.edits import write_value
from fleet.model.values import Value, later
from fleet.schema.findings import Path
from fleet.schema.model import Fleet
from fleet.schema.units import ConfigSection

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
class Edits:
    """The differences between two versions of fleet.yaml, `base` and `head`."""

    base: Fleet
    head: Fleet

    @cached_property
    def found(self) -> tuple[Edited, ...]:
        """Return every edited key, in the order of the reference page of fleet.yaml."""
        return tuple(differing((), self.base, self.head))

    @property
    def has_rules(self) -> bool:
        """Return whether the change edits the allow-list (`powerful`)."""
        return any(each.path[0] == "powerful" for each in self.found)

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


def find_config_changes(edits: Edits) -> tuple[ConfigChange, ...]:
    """Return the edited keys except those of pools. `PoolChange` compares the keys of pools."""
    return tuple(
        ConfigChange(path=edited.path, before=before, after=after, **edits.entries(edited))
        for entry in edits.found
        for edited in differing(*entry)  # the keys of a replaced entry of a list
        if not _is_compared_in_pools(edited.path)
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


def _is_compared_in_pools(path: Path) -> bool:
    key = tuple(path[2:])  # empty if the change adds or removes a pool
    is_compared = not key or any(key[: len(each)] == each for each in _COMPARED_IN_POOLS)
    return path[0] == "pools" and is_compared


def _shorten(text: str) -> str:
    """Cut a long value after an entry, else after a word."""
    if len(text) <= _MAX_LENGTH:
        return text
    cut = text[:_MAX_LENGTH]
    entries, comma, _ = cut.rpartition(", ")
    return f"{entries}, …" if comma else f"{cut.rpartition(' ')[0] or cut}…"
