"""Reassign requests in whole numbers, some neighbouring places at a time.

Where an answer differs from the cheapest one in parts that serves the same, requests may be
elsewhere for less. Blocks' columns in which the two differ are loose, with the least dear ones of
each block and the machines of their places. A programme of some hundred loose columns is solved in
whole numbers while all others stay, one such neighbourhood after the other. Which columns are
loose: RINS (E. Danna, E. Rothberg, C. Le Pape, Mathematical Programming 102, 2005); one after the
other: large neighbourhood search (P. Shaw, CP 1998).
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from fleet.planner.formulation import EPSILON, Answer, Model
from fleet.planner.sifting import Relaxed


def reassign(model: Model, answer: Answer, relaxed: Relaxed, ways: int, size: int) -> Answer:
    """Return who is served where after each neighbourhood was searched once, and who fits then.

    `ways`: how many of its least dear columns each block has loose besides; `size`: about how many
    columns are loose at once.
    """
    values = model.programme.dense(answer.values())
    parts = _Neighbourhoods(model, ways, size).around(values, relaxed)
    found = model.programme.search(parts, values, answer.sums())
    return Answer(model, model.in_whole_requests(found.tolist()))


class _Neighbourhoods:
    """Which columns are loose together."""

    def __init__(self, model: Model, ways: int, size: int) -> None:
        import numpy as np

        self._np, self._ways, self._size = np, ways, size
        self._machine = [model.makes.get(key) for key in model.places]
        count, at = len(model.programme.costs), {key: n for n, key in enumerate(model.places)}
        self._blocks, self._places = np.full(count, -1), np.full(count, -1)
        for nth, block in enumerate(model.blocks):
            self._blocks[block.columns] = nth
            self._places[block.columns] = [at[key] for key in block.fits]

    def around(self, values: Any, relaxed: Relaxed) -> Iterator[Sequence[int]]:  # noqa: ANN401 - an array of numpy
        """Yield loose columns of places that are near each other, where most is to gain first."""
        np = self._np
        apart = abs(values - np.array(relaxed.values))
        loose = np.flatnonzero(((apart > EPSILON) | self._cheap(relaxed)) & (self._blocks >= 0))
        loose = loose[np.argsort(-apart[loose], kind="stable")]
        at: dict[int, list[int]] = {}
        places: dict[int, list[int]] = {}
        gains: Counter[int] = Counter()
        for column in loose.tolist():
            block, place = int(self._blocks[column]), int(self._places[column])
            at.setdefault(place, []).append(column)
            places.setdefault(block, []).append(place)
            gains[place] += apart[column] * max(0.0, relaxed.dearness[column])
        seen: set[int] = set()
        for first, _ in gains.most_common():
            if first in seen:
                continue
            found: list[int] = []
            known, near = {first}, deque([first])
            while near and len(found) < self._size:
                place = near.popleft()
                seen.add(place)
                found += at[place][: self._size]
                if (machine := self._machine[place]) is not None:
                    found.append(machine)
                beside = Counter(
                    other
                    for column in at[place]
                    for other in places[int(self._blocks[column])]
                    if other not in known
                )
                near.extend(other for other, _ in beside.most_common())
                known.update(beside)
            yield sorted(found)

    def _cheap(self, relaxed: Relaxed) -> Any:  # noqa: ANN401 - an array of numpy
        """Return which columns are among so many least dear ones of their block."""
        np = self._np
        order = np.lexsort((relaxed.dearness, self._blocks))
        blocks = self._blocks[order]
        found = np.zeros(len(order), dtype=bool)
        found[order] = np.arange(len(order)) - np.searchsorted(blocks, blocks) < self._ways
        return found
