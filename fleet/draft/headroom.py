"""This module keeps count of what is left of each limit while machines are made beside allocation.

Replacements and warm machines have to take theirs from it, so that no action of ours takes a
count or money past a limit.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from fleet.demand.choices import Row


@dataclass(frozen=True)
class Stopped:
    """A limit that forbids one machine more that is there to stay, and what that would take."""

    row: Row
    need: Decimal


class Headroom:
    """What is left of each limit once waiting requests have theirs."""

    def __init__(
        self,
        rows: Sequence[Row],
        machines: Mapping[str, int],
        served: Mapping[tuple[str, str], int],
    ) -> None:
        self._left = [
            row.room
            - sum((factor * machines.get(p, 0) for p, factor in row.machines.items()), Decimal(0))
            - sum((factor * served.get(at, 0) for at, factor in row.requests.items()), Decimal(0))
            for row in rows
        ]
        self._of: defaultdict[str, list[tuple[int, Row]]] = defaultdict(list)
        for number, row in enumerate(rows):
            for place in row.kept or row.machines:
                self._of[place].append((number, row))
        self.kept: defaultdict[str, int] = defaultdict(int)
        """Place to how many machines were taken that are there to stay."""

    def take(self, place: str) -> Stopped | None:
        """Take one machine that is there to stay; return the limit that forbids it, or None."""
        takes = [
            (number, (row.kept or row.machines)[place], row) for number, row in self._of[place]
        ]
        for number, amount, row in takes:
            if amount > self._left[number]:
                return Stopped(row, amount)
        for number, amount, _ in takes:
            self._left[number] -= amount
        self.kept[place] += 1
        return None
