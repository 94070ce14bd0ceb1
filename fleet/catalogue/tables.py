"""This module reads the shipped tables of machine types: one CSV per cloud, each price dated.

A table is read when its first type is asked for. Its first lines name the source and the day of
each column of prices; tools/refresh_catalogue.py writes them. An empty price is not known.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cache
from pkgutil import get_data

from fleet.schema.model import Money

LOCATIONS = {
    "fsn1": "fsn1",
    "nbg1": "fsn1",
    "hel1": "fsn1",
    "ash": "ash",
    "hil": "ash",
    "sin": "sin",
}
"""Hetzner's locations, and in which column their prices are: it charges alike within a zone."""
_SPOT = Decimal("0.99")
"""Below the price on demand, so that spot is bought first where both are."""


@dataclass(frozen=True)
class MachineType:
    """One machine type: memory and disk in MiB, price per hour in `currency`."""

    name: str
    cores: int
    memory: int
    disk: int
    price: Decimal | None
    currency: str
    architecture: str = "amd64"
    spot: Money | None = None
    """Price per hour on the spot market; None: it is not sold there, or nobody knows for what."""
    extras: tuple[Money, ...] = ()
    """What one machine costs per hour beside its price: its address, disk above the type's own."""
    all_in: bool = False
    """The price on demand is the pool's own, extras included."""
    line: str = ""
    """Which of its provider's lines it is of: shared or dedicated cores, or the family at EC2."""
    speed: int = 0
    """Percent of the usual speed, where it is stated; 0: it is not."""


@dataclass(frozen=True)
class Table:
    """Machine types and what they cost at one place."""

    as_of: str = ""
    """The day its prices are of; empty where it has none for the place."""
    source: str = ""
    types: Mapping[str, MachineType] = field(default_factory=dict)


def table(kind: str, place: str) -> Table:
    """Return what a kind of provider sells at a place: a location or a region."""
    if kind not in _CURRENCIES:
        return Table()
    return _table(kind, LOCATIONS.get(place, place) if kind == "hcloud" else place)


_CURRENCIES = {"aws": "USD", "hcloud": "EUR", "sim": "EUR"}


@cache
def _table(kind: str, column: str) -> Table:
    lines = (get_data(__package__, f"{kind}.csv") or b"").decode().splitlines()
    notes = dict(
        each[2:].split(": ", 1) for each in lines if each.startswith("# ") and ": " in each
    )
    rows = csv.DictReader(each for each in lines if not each.startswith("#"))
    as_of, _, source = notes.get(column, "").partition(" ")
    # Only a column that a note dates holds prices.
    types = (_type(kind, row, (as_of and row.get(column)) or None) for row in rows)
    return Table(as_of, source, {each.name: each for each in types})


def _type(kind: str, row: Mapping[str, str], price: str | None) -> MachineType:
    known = MachineType(
        name=row["name"],
        cores=int(row["cores"]),
        memory=int(row["memory"]),
        disk=int(row["disk"]),
        price=None if price is None else Decimal(price),
        currency=_CURRENCIES[kind],
        architecture=row["architecture"],
        line=row["class"],
    )
    if kind != "aws" or known.price is None:
        return known
    # Spot costs at most the price on demand, and varies: no table says by how much.
    return replace(known, spot=Money(amount=known.price * _SPOT, currency=known.currency))
