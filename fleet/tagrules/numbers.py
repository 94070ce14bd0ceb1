"""Numeric tags: a worker states `memory_gib=128`, a request asks for `memory_gib>=64`.

A number is from 0 to below 10**12, with at most six decimal places.
"""

import re
from collections.abc import Iterable
from decimal import Decimal

Numbers = tuple[tuple[str, Decimal], ...]
"""Names of numeric tags and a number for each, sorted by name."""

_WRITTEN = re.compile(
    r"(?P<name>[^\s<>=]+)(?P<sign>>=|=)(?P<number>[0-9]{1,12}(\.[0-9]{1,6})?)", re.ASCII
)


_NAMED = re.compile(r"(?P<name>[^\s<>=]+)(>=|=)", re.ASCII)


def tag_name(tag: str) -> str:
    """Return the name in `name>=64` and `name=128`; a plain tag is its own name."""
    match = _NAMED.match(tag) if "=" in tag else None  # nearly every tag is plain
    return match["name"] if match else tag


def read_minimums(tags: Iterable[str], names: Iterable[str]) -> tuple[frozenset[str], Numbers]:
    """Return the plain tags, and the highest minimum asked of each numeric tag in `names`."""
    return _read(tags, frozenset(names), ">=")


def read_numbers(tags: Iterable[str], names: Iterable[str]) -> tuple[frozenset[str], Numbers]:
    """Return the plain tags, and the highest number stated of each numeric tag in `names`."""
    return _read(tags, frozenset(names), "=")


def unmet(minimums: Numbers, numbers: Numbers) -> tuple[str, ...]:
    """Return the minimums that are not reached, as tags, sorted."""
    have = dict(numbers)
    return tuple(f"{name}>={least:f}" for name, least in minimums if have.get(name, -1) < least)


def write_minimums(minimums: Numbers) -> tuple[str, ...]:
    """Return minimums as tags."""
    return tuple(f"{name}>={least:f}" for name, least in minimums)


def _read(tags: Iterable[str], names: frozenset[str], sign: str) -> tuple[frozenset[str], Numbers]:
    plain: set[str] = set()
    found: dict[str, Decimal] = {}
    for tag in tags:
        match = _WRITTEN.fullmatch(tag) if sign in tag else None
        if match and match["sign"] == sign and match["name"] in names:
            number = Decimal(match["number"]).normalize()
            found[match["name"]] = max(number, found.get(match["name"], number))
        else:
            plain.add(tag)
    return frozenset(plain), tuple(sorted(found.items()))
