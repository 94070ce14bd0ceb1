"""This module finds keys that are read but not acted upon yet: they are never just ignored."""

from collections.abc import Iterator
from typing import Any

from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet, Section

RULE = "not-yet-supported"


KEYS: tuple[tuple[str, ...], ...] = (
    ("money", "net"),
    ("pools", "*", "machine", "slots"),
)
"""What is parsed but not yet acted upon; `*` stands for any name."""


def check(fleet: Fleet) -> Iterator[Finding]:
    """Name every key that has no effect yet, so that nobody relies on it."""
    for key in KEYS:
        for path in _written(fleet, key):
            said = f"'{path[-1]}' is understood but has no effect yet"
            yield Finding(RULE, said, path, severity="warning", at="key")


def _written(value: Any, key: tuple[str, ...], path: Path = ()) -> Iterator[Path]:  # noqa: ANN401 - any part
    """Yield where a person wrote a key."""
    step = key[len(path)] if len(path) < len(key) else None
    if step is None:
        yield path
    elif step == "*":
        for name, part in value.items():
            yield from _written(part, key, (*path, name))
    elif isinstance(value, Section) and step in value.model_fields_set:
        yield from _written(getattr(value, step), key, (*path, step))
