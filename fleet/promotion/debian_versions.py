"""This module orders versions of Debian packages, as deb-version(7) has it."""

import re
from typing import Any

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")


def version_key(version: str) -> Any:  # noqa: ANN401 - nested tuples, good for comparing only
    """Return what versions are compared by: epoch, upstream version, Debian's revision."""
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return _number(epoch), _key(upstream if dash else rest), _key(revision if dash else "0")


def _key(part: str) -> Any:  # noqa: ANN401 - as above
    return tuple((_letters(text), _number(digits)) for text, digits in _PARTS.findall(part))


def _letters(text: str) -> tuple[int, ...]:
    """Return text so that a tilde comes before its end, and letters before all else."""
    return (*map(_order, text), 0)


def _order(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) + (0 if character.isalpha() else 256)


def _number(digits: str) -> tuple[int, str]:
    """Return digits in the order of their numbers, however many they are."""
    stripped = digits.lstrip("0")
    return len(stripped), stripped
