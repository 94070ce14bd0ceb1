"""This module reads the options of one Resalloc pool, with Resalloc's own defaults."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from fleet.imports.changes import Notes
from fleet.imports.writing import shown
from fleet.schema.base import LONGEST_WORD, TAG_PATTERN
from fleet.schema.findings import Span, did_you_mean, quoted
from fleet.schema.nodes import Node
from fleet.schema.sources import COUNTER_PATTERN
from fleet.schema.units import follows

_MOST = 100_000
_LONGEST_TAG = 200


@dataclass
class PoolOptions:
    """One pool: what is written of it, where, and what is left out with its default."""

    name: str
    written: str
    place: Span
    places: dict[str, Span] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    tags: dict[str, int] = field(default_factory=dict)
    on_demand: dict[str, int] = field(default_factory=dict)
    counters: list[str] = field(default_factory=list)

    def number(self, option: str) -> int:
        """Return a number, or what Resalloc takes when it is left out."""
        return self.numbers.get(option, _NUMBERS[option])

    def at(self, option: str) -> Span:
        """Return where an option is written, or its pool."""
        return self.places.get(option, self.place)

    @property
    def reuse_seconds(self) -> int:
        """Return how long a used machine is kept for the next; 0: it is not used again."""
        return self.number("reuse_opportunity_time")


_NUMBERS = {
    "max": 4,
    "max_starting": 1,
    "max_prealloc": 2,
    "start_delay": 0,
    "livecheck_period": 600,
    "livecheck_attempts": 3,
    "reuse_opportunity_time": 0,
    "reuse_max_count": 0,
    "reuse_max_time": 3600,
}
_COMMANDS = ("cmd_new", "cmd_delete", "cmd_livecheck", "cmd_release", "cmd_list")
_TEXTS = ("name_pattern", "description")
_TAGS = ("tags", "tags_on_demand")
OPTIONS = (*_NUMBERS, *_COMMANDS, *_TEXTS, *_TAGS, "named_counters")


def read_options(name: str, key: Node, value: Node, notes: Notes) -> PoolOptions:
    """Return what a pool says; what cannot be read becomes findings."""
    pool = PoolOptions(name, str(key.value), key.span)
    for option, node in value.entries:
        word = str(option.value)
        pool.places[word] = option.span
        reader = _reader(word)
        if reader is None:
            now = f"Resalloc ignores it too; {did_you_mean(word, OPTIONS)}"
            notes.change("never-acts", option.span, f"option {word}: {shown(node)}", now)
        elif node.kind == "scalar" and node.value is None:
            now = "it is as if it were left out"
            notes.change("never-acts", option.span, f"option {word} without a value", now)
        else:
            reader(pool, word, node, notes)
    for needed in ("cmd_new", "cmd_delete"):
        if needed not in pool.places:
            notes.wrong(pool.place, "missing-key", f"pool {pool.written} has no {needed}")
    return pool


Reader = Callable[[PoolOptions, str, Node, Notes], None]


def _reader(option: str) -> Reader | None:
    if option in _NUMBERS:
        return _number
    if option in _COMMANDS:
        return partial(_text, LONGEST_WORD)
    if option in _TEXTS:
        return partial(_text, None)
    if option in _TAGS:
        return _tags
    return _counters if option == "named_counters" else None


def _number(pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    number = node.value
    if not isinstance(number, int) or isinstance(number, bool):
        notes.wrong(
            node.span, "wrong-type", f"{option}: expected a whole number, got {_short(node)}"
        )
    elif not 0 <= number <= _MOST:
        notes.wrong(node.span, "wrong-value", f"{option}: expected 0 to {_MOST}, got {number}")
    else:
        pool.numbers[option] = number


def _text(longest: int | None, pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    text = node.value
    if node.kind != "scalar" or not isinstance(text, str) or not text.strip():
        notes.wrong(node.span, "wrong-type", f"{option}: expected text, got {_short(node)}")
    elif longest is not None and len(text) > longest:
        hint = "put it into a script and write its path here"
        message = f"{option}: a command longer than {longest} characters"
        notes.wrong(node.span, "wrong-value", message, hint)
    elif option in _COMMANDS:
        pool.commands[option] = text.strip()
    else:
        pool.texts[option] = text


def _tags(pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    if node.kind != "list":
        notes.wrong(node.span, "wrong-type", f"{option}: expected a list, got {_short(node)}")
        return
    found = pool.tags if option == "tags" else pool.on_demand
    for item in node.items:
        entries = {str(key.value): value for key, value in item.entries}
        name = entries.get("name", item)
        priority = entries["priority"].value if "priority" in entries else 0
        is_number = isinstance(priority, int) and abs(priority) <= _MOST
        if not _is_tag(name.value) or not is_number or entries.keys() - _KEYS:
            message = f"{option}: expected a tag or {{name: TAG, priority: NUMBER}}"
            notes.wrong(item.span, "wrong-type", f"{message}, got {_short(item)}")
        else:
            found[name.value] = priority


_KEYS = {"name", "priority"}


def _is_tag(text: object) -> bool:
    return isinstance(text, str) and len(text) <= _LONGEST_TAG and follows(TAG_PATTERN, text)


def _counters(pool: PoolOptions, option: str, node: Node, notes: Notes) -> None:
    names = [item.value for item in node.items]
    if node.kind != "list" or not all(
        isinstance(name, str) and re.match(COUNTER_PATTERN, name) for name in names
    ):
        expected = "expected a list of names of letters, digits and _"
        notes.wrong(node.span, "wrong-type", f"{option}: {expected}")
    else:
        pool.counters += [item.value for item in node.items]


def _short(node: Node) -> str:
    if node.kind != "scalar":
        return f"a {node.kind}"
    return quoted(node.value)
