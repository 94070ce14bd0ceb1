"""Reassign requests in whole numbers, some neighbouring places at a time.

Where an answer differs from the cheapest one in parts that serves the same, requests may be
elsewhere for less. Blocks' columns in which the two differ are loose, and the machines of their
places. A programme of some hundred loose columns is solved in whole numbers while all others stay,
one such neighbourhood after the other. Which columns are loose: RINS (E. Danna, E. Rothberg,
C. Le Pape, Mathematical Programming 102, 2005); one after the other: large neighbourhood search
(P. Shaw, CP 1998).
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fleet.planner.formulation import EPSILON, Answer, Model
from fleet.planner.sifting import Relaxed


class Pass(NamedTuple):
    """How all neighbourhoods are searched once."""

    size: int
    """About how many columns are loose at once."""
    between: bool = False
    """Each is between what it is in the two answers: most is found so, and soon."""
    ways: int = 0
    """How many of its least dear columns each block has loose besides."""


def reassign(model: Model, answer: Answer, relaxed: Relaxed, passes: Iterable[Pass]) -> Answer:
    """Return who is served where after these passes, and who fits then."""
    programme, sums = model.programme, answer.sums()
    values = programme.dense(answer.values())
    for each in passes:
        parts = _neighbourhoods(model, abs(values - relaxed.values), relaxed.dearness, each)
        values = programme.search(parts, values, sums, relaxed.values if each.between else None)
    return Answer(model, model.in_whole_requests(values.tolist()))


def _neighbourhoods(
    model: Model,
    apart: Any,  # noqa: ANN401 - arrays of numpy
    dearness: Any,  # noqa: ANN401
    each: Pass,
) -> Iterator[Sequence[int]]:
    """Yield loose columns of places that are near each other, where most is to gain first."""
    import numpy as np

    blocks, places = model.origins
    machine = [model.makes.get(key) for key in model.places]
    loose = np.flatnonzero(
        ((apart > EPSILON) | _cheap(blocks, dearness, each.ways)) & (blocks >= 0)
    )
    loose = loose[np.argsort(-apart[loose], kind="stable")]
    at: dict[int, list[int]] = {}
    places_of: dict[int, list[int]] = {}
    gains: Counter[int] = Counter()
    for column in loose.tolist():
        block, place = int(blocks[column]), int(places[column])
        at.setdefault(place, []).append(column)
        places_of.setdefault(block, []).append(place)
        gains[place] += apart[column] * max(0.0, dearness[column])
    seen: set[int] = set()
    for first, _ in gains.most_common():
        if first in seen:
            continue
        found: list[int] = []
        known, near = {first}, deque([first])
        while near and len(found) < each.size:
            place = near.popleft()
            seen.add(place)
            found += at[place][: each.size]
            if (makes := machine[place]) is not None:
                found.append(makes)
            beside = Counter(
                other
                for column in at[place]
                for other in places_of[int(blocks[column])]
                if other not in known
            )
            near.extend(other for other, _ in beside.most_common())
            known.update(beside)
        yield sorted(found)


def _cheap(blocks: Any, dearness: Any, ways: int) -> Any:  # noqa: ANN401 - arrays of numpy
    """Return which columns are among so many least dear ones of their block."""
    import numpy as np

    order = np.lexsort((dearness, blocks))
    alike = blocks[order]
    found = np.zeros(len(order), dtype=bool)
    found[order] = np.arange(len(order)) - np.searchsorted(alike, alike) < ways
    return found
