"""This module finds secrets that were written into a file, in what it dropped as well."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.schema.base import ENV_PATTERN
from fleet.schema.concealed import holds_secret, names_secret
from fleet.schema.findings import At, Path, nearest
from fleet.schema.nodes import Node

_REFERENCE_KEYS = ("env", "file", "command", "environment")


@dataclass(frozen=True)
class InlineSecret:
    """A value, or a key, that must not be repeated."""

    path: Path
    node: Node
    at: At = "value"


def find_secrets(node: Node, path: Path = (), *, secret: bool = False) -> Iterator[InlineSecret]:
    """Yield every secret below a node; `secret` says that all of it is one."""
    if node.kind == "mapping":
        for key, value in (*node.entries, *node.dropped):
            yield from _in_entry(key, value, path, secret=secret)
    elif node.kind == "list":
        for number, item in enumerate(node.items):
            yield from find_secrets(item, (*path, number), secret=secret)
    elif (secret and node.value is not None) or _is_credential(node):
        yield InlineSecret(path, node)


def _in_entry(key: Node, value: Node, path: Path, *, secret: bool) -> Iterator[InlineSecret]:
    name = str(key.value)
    here = (*path, name)
    if key.kind != "scalar":
        yield from find_secrets(key, path, secret=secret)
    elif _is_credential(key):
        yield InlineSecret(here, key, "key")
    meant = nearest(name, _REFERENCE_KEYS) if secret else ""
    if meant and value.kind != "mapping":
        yield from find_secrets(value, here, secret=not _refers(meant, value))
        return
    begins = names_secret(name) or (name == "read" and path[:1] == ("queues",))
    chosen_name = len(here) == 2 and value.kind == "mapping"  # noqa: PLR2004 - as in pools.NAME
    yield from find_secrets(value, here, secret=secret or (begins and not chosen_name))


def _is_credential(node: Node) -> bool:
    return isinstance(node.value, str) and holds_secret(node.value)


def _refers(key: str, value: Node) -> bool:
    """Say whether this is a way to name a secret and not the secret itself."""
    if key == "command":
        return value.kind == "list"
    if key == "environment":
        return value.kind == "list" and all(map(_is_name, value.items))
    return value.kind != "list" and (key == "file" or _is_name(value))


def _is_name(value: Node) -> bool:
    return re.match(ENV_PATTERN, str(value.value)) is not None
