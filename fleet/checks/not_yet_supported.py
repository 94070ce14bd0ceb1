"""This module finds keys that are read but not acted upon yet: they are never just ignored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet, Section

RULE = "not-yet-supported"


@dataclass(frozen=True)
class Key:
    """A key without effect so far; `*` stands for any name; only where its value is one of."""

    path: tuple[str, ...]
    values: tuple[str, ...] = ()


def _key(path: str, *values: str) -> Key:
    return Key(tuple(path.split(".")), values)


KEYS = (
    _key("money.net"),
    _key("queues.*.kind", "copr"),
    _key("pools.*.hooks"),
    _key("pools.*.machine.slots"),
)
"""What is parsed but not yet acted upon."""


def check(fleet: Fleet) -> Iterator[Finding]:
    """Name every key that has no effect yet, so that nobody relies on it."""
    for key in KEYS:
        for path, value in _written(fleet, key):
            yield _finding(key, path, value)


def _written(value: Any, key: Key, path: Path = ()) -> Iterator[tuple[Path, Any]]:  # noqa: ANN401 - any part
    """Yield where a person wrote a key, and what."""
    step = key.path[len(path)] if len(path) < len(key.path) else None
    if step is None:
        if (not key.values or value in key.values) and value not in ({}, []):
            yield path, value
    elif step == "*":
        for name, part in value.items():
            yield from _written(part, key, (*path, name))
    elif isinstance(value, Section) and step in value.model_fields_set:
        yield from _written(getattr(value, step), key, (*path, step))


def _finding(key: Key, path: Path, value: object) -> Finding:
    what = f"{path[-1]}: {value}" if key.values else path[-1]
    return Finding(
        RULE,
        f"'{what}' is understood but has no effect yet",
        path,
        severity="warning",
        at="value" if key.values else "key",
    )
