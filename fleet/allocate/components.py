"""This module splits what allocation has to solve into parts that share nothing.

So a change in one corner of a fleet never moves what is decided in another.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from fleet.demand.choices import Group, Place, Row

_Name = tuple[str, str]


@dataclass(frozen=True)
class Component:
    """Groups, places and limits that share anything."""

    groups: tuple[Group, ...]
    places: tuple[Place, ...]
    rows: tuple[Row, ...]


def components(
    groups: Sequence[Group], places: Mapping[str, Place], rows: Sequence[Row]
) -> Iterator[Component]:
    """Yield what shares demand or a limit that can be reached, in canonical order."""
    joined = _Joined()
    most = _join_alike(joined, groups, places)
    binding = [row for row in rows if _can_bind(row, groups, most)]
    for number, row in enumerate(binding):
        for name in _members(row, most):
            joined.join(("row", str(number)), name)
    parts: defaultdict[_Name, _Part] = defaultdict(_Part)
    for group in groups:
        parts[joined.head(("group", group.id))].groups.append(group)
    for key in sorted(most):
        parts[joined.head(("place", key))].places.append(places[key])
    for number, row in enumerate(binding):
        if ("row", str(number)) in joined:
            parts[joined.head(("row", str(number)))].rows.append(row)
    for part in parts.values():
        yield Component(tuple(part.groups), tuple(part.places), tuple(part.rows))


def _join_alike(
    joined: "_Joined", groups: Sequence[Group], places: Mapping[str, Place]
) -> dict[str, int]:
    """Join groups with the places that they fit, and return how many requests each could get."""
    alike: defaultdict[tuple[str, ...], list[Group]] = defaultdict(list)
    for group in groups:
        alike[tuple(group.fits)].append(group)
    most: defaultdict[str, int] = defaultdict(int)
    for keys, members in alike.items():
        first = ("group", members[0].id)
        for group in members[1:]:
            joined.join(first, ("group", group.id))
        for place in keys:
            if place in places:
                joined.join(first, ("place", place))
                most[place] += sum(len(group.requests) for group in members)
    return most


@dataclass
class _Part:
    groups: list[Group] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)


def _members(row: Row, most: Mapping[str, int]) -> Iterator[_Name]:
    yield from (("place", place) for place in row.machines if place in most)
    for group, place in row.requests:
        if place in most:
            yield from (("group", group), ("place", place))


def _can_bind(row: Row, groups: Sequence[Group], most: Mapping[str, int]) -> bool:
    """Say whether serving everybody in the costliest way could reach a limit."""
    taken = sum(
        (factor * most[place] for place, factor in row.machines.items() if place in most),
        Decimal(0),
    )
    if row.requests:
        sizes = {group.id: len(group.requests) for group in groups}
        dearest: defaultdict[str, Decimal] = defaultdict(Decimal)
        for (group, _), factor in row.requests.items():
            dearest[group] = max(dearest[group], factor)
        taken += sum((sizes.get(g, 0) * factor for g, factor in dearest.items()), Decimal(0))
    return taken > row.room


class _Joined:
    """Sets of names that belong together (union-find)."""

    def __init__(self) -> None:
        self._above: dict[_Name, _Name] = {}

    def __contains__(self, name: _Name) -> bool:
        return name in self._above

    def head(self, name: _Name) -> _Name:
        """Return the one name that stands for all that are joined with this one."""
        above = self._above.setdefault(name, name)
        while above != self._above[above]:
            self._above[above] = self._above[self._above[above]]
            above = self._above[above]
        return above

    def join(self, one: _Name, other: _Name) -> None:
        """Put two names, and all that are joined with them, together."""
        first, second = sorted((self.head(one), self.head(other)))
        self._above[second] = first
