"""This module finds keys that are read but not acted upon yet: they are never just ignored."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet, Pool, Section
from fleet.tagrules.sources import pool_sources
from fleet.tagrules.vocabulary import Vocabulary

RULE = "not-yet-supported"


@dataclass(frozen=True)
class Key:
    """A key without effect so far; `*` stands for any name; only where its value is one of."""

    path: tuple[str, ...]
    values: tuple[str, ...] = ()
    protects: bool = False
    instead: str = ""
    """What it does, where it does something."""


def _key(path: str, *values: str, protects: bool = False, instead: str = "") -> Key:
    return Key(tuple(path.split(".")), values, protects, instead)


KEYS = (
    _key("money.net"),
    _key("providers.*.kind", "aws", "local", "hooks"),
    _key(
        "providers.*.kind",
        "hcloud",
        instead="is planned for, but buys no machine yet: fleet apply refuses to create there",
    ),
    _key("queues.*.kind", "copr", "tickets"),
    _key("queues.*.read"),
    _key("queues.*.admin"),
    _key("tags.*.limits", protects=True),
    _key("tags.*.priority"),
    _key("tags.*.otherwise"),
    _key("images.*.source"),
    _key("images.*.enable_backends"),
    _key("images.*.enable_tasks"),
    _key("images.*.api_url"),
    _key("images.*.rebuild"),
    _key("images.*.publish"),
    _key("pools.*.hooks"),
    _key("pools.*.machine.swap"),
    _key("pools.*.machine.market"),
    _key("pools.*.machine.slots"),
    _key("pools.*.retire.max_age"),
    _key("pools.*.retire.max_uses"),
    _key("pools.*.target_wait"),
    _key("pools.*.budget", protects=True),
    _key("pools.*.replace"),
    _key("pools.*.previously"),
    _key("budgets", protects=True),
    _key("guards.boot_failures", protects=True),
    _key("approvals"),
)
"""What is parsed but not yet acted upon; `protects` where it bounds money or guards builds."""


def check(fleet: Fleet) -> Iterator[Finding]:
    """Name every key that has no effect yet, so that nobody relies on it."""
    for key in KEYS:
        for path, value in _written(fleet, key):
            yield _finding(key, path, value)


def unenforced_protections(fleet: Fleet) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    """Return the keys that were to protect money or builds, each with the pools it is about.

    Until they are enforced, changing machines of these pools would break their promise.
    """
    found = []
    for key in KEYS:
        if key.protects:
            for path, _ in _written(fleet, key):
                pools = tuple(sorted(_pools_of(fleet, path)))
                if pools:
                    found.append((path, pools))
    return tuple(found)


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


def _pools_of(fleet: Fleet, path: Path) -> Iterator[str]:
    dynamic = [name for name, pool in fleet.pools.items() if isinstance(pool, Pool)]
    match path:
        case ("pools", str(name), *_):
            yield name
        case ("tags", str(tag), *_):
            yield from (name for name in dynamic if _provides(fleet, name, tag))
        case _:
            yield from dynamic


def _provides(fleet: Fleet, pool: str, name: str) -> bool:
    """Say whether a pool provides a tag that this name under `tags` declares."""
    vocabulary = Vocabulary(fleet)
    return any(name in vocabulary.names_of(each.tag) for each in pool_sources(fleet, pool, ()))


def _finding(key: Key, path: Path, value: object) -> Finding:
    what = f"{path[-1]}: {value}" if key.values else path[-1]
    promise = "; fleet apply refuses pools that rely on it" if key.protects else ""
    return Finding(
        RULE,
        f"'{what}' {key.instead or 'is understood but has no effect yet'}{promise}",
        path,
        severity="warning",
        at="value" if key.values else "key",
        hint="remove it until it is supported" if key.protects else "",
    )
