"""Reassign requests in whole numbers, some neighbouring places at a time.

Where an answer differs from the cheapest one in parts that serves the same, requests may be
elsewhere for less. Blocks' columns in which the two differ are loose, and the machines of their
places. A programme of some hundred loose columns is solved in whole numbers while all others stay,
one such neighbourhood after the other. Which columns are loose: RINS (E. Danna, E. Rothberg,
C. Le Pape, Mathematical Programming 102, 2005); one after the other: large neighbourhood search
(P. Shaw, CP 1998).

Where thousands of requests have to move together, no neighbourhood is large enough. So what is
whole of the answer in parts is kept, and neighbourhoods of those whom it divides are searched, in
which whoever is not served costs much: the more, the larger the request and the earlier its rank.
Who is not served in the end takes the place of a later rank, as far as that serves all ranks well.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
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


_SIZE, _LARGE = 400, 800
"""About how many columns are loose at once where it is begun anew, and where a rank is short."""
_TRIES = 5
"""How often it is searched then; each time among twice as many neighbourhoods, from two on."""
_DEAR, _NEXT, _LATER, _TINY = 5.0, 0.15, 0.2, 0.02
"""To leave somebody out who needs a machine costs so many times the dearest way to serve anybody;
of each next rank it is divided by so much more; so much of that where a rank before is short. A
request seems this much larger than it is."""


def reassign(model: Model, answer: Answer, relaxed: Relaxed, passes: Iterable[Pass]) -> Answer:
    """Return who is served where after these passes, and who fits then."""
    programme, sums = model.programme, answer.sums()
    values = programme.dense(answer.values())
    for each in passes:
        parts = _neighbourhoods(model, abs(values - relaxed.values), relaxed.dearness, each)
        toward = relaxed.values if each.between else None
        values = programme.search(parts, values, sums, toward=toward)
    return Answer(model, model.in_whole_requests(values.tolist()))


def assign_anew(model: Model, answer: Answer, relaxed: Relaxed) -> Answer:
    """Return who is served where, begun from what is whole of the answer in parts."""
    import numpy as np

    programme, (blocks, places) = model.programme, model.origins
    given, values, own = programme.dense(answer.values()), _whole(model, relaxed), blocks >= 0
    wanted = np.bincount(blocks[own], given[own])
    ranks = np.array([model.every_rank.index(block.rank) for block in model.blocks])
    counts = np.array([block.size for block in model.blocks])
    shares = np.array([min(share for share, _ in block.fits.values()) for block in model.blocks])
    dear = _DEAR * model.dearest()
    price = small = dear * np.sqrt(shares + _TINY) / (1 + _NEXT * ranks)
    rows, prices = [block.row for block in model.blocks], np.zeros(len(programme.ends))
    found, due, most = answer, ranks >= 0, wanted
    for nth in range(_TRIES):
        served = np.bincount(blocks[own], values[own])
        lacking = np.where(due, np.maximum(0, most - served), 0)
        short = np.where(due, np.maximum(0, wanted - served), 0) * price
        loose = np.flatnonzero(own & ((values > 0) | (given > 0) | (relaxed.values > EPSILON)))
        first = np.argsort(-short, kind="stable")[: np.count_nonzero(short)]
        starts = [places[loose[blocks[loose] == block]].tolist() for block in first]
        parts = _near(model, loose, starts, _LARGE if nth else _SIZE)
        sums = [*zip(rows, (served + lacking).astype(int).tolist(), strict=True)]
        prices[rows] = price
        values = programme.search(
            islice(parts, 2**nth if nth else None), values, sums, prices=prices
        )
        found = Answer(model, model.in_whole_requests(values.tolist()))
        more = np.subtract(found.lacking(), answer.lacking())
        rank = int(np.argmax(more != 0))
        if more[rank] <= 0:
            break
        # This rank counts, whoever of it is served; of later ones what was served may be lacking.
        values, due, most = programme.dense(found.values()), ranks == rank, counts
        price = np.where(due, dear, np.where(ranks > rank, _LATER * small, 0.0))
    return found


def _whole(model: Model, relaxed: Relaxed) -> Any:  # noqa: ANN401 - an array of numpy
    """Return what is whole of an answer in parts, as far as there are machines for it."""
    import numpy as np

    programme, entries = model.programme, model.programme.sifted.entries
    values = np.floor(relaxed.values + EPSILON)
    room = programme.room_beside(values) + EPSILON
    for machine, hold in model.holds.items():
        if room[hold] >= 0:
            continue
        rows, factors = entries(machine)
        if ((room[rows] >= factors) | (factors < 0)).all():
            values[machine] += 1
            room[rows] -= factors
        takes = programme.takes_of(hold)
        columns = np.flatnonzero(takes > 0)
        for column in columns[np.argsort(-takes[columns], kind="stable")]:
            rows, factors = entries(column)
            while room[hold] < 0 and values[column] > 0:
                values[column] -= 1
                room[rows] += factors
    return values


def _neighbourhoods(
    model: Model,
    apart: Any,  # noqa: ANN401 - arrays of numpy
    dearness: Any,  # noqa: ANN401
    each: Pass,
) -> Iterator[Sequence[int]]:
    """Yield loose columns of places that are near each other, where most is to gain first."""
    import numpy as np

    blocks, places = model.origins
    loose = np.flatnonzero(
        ((apart > EPSILON) | _cheap(blocks, dearness, each.ways)) & (blocks >= 0)
    )
    loose = loose[np.argsort(-apart[loose], kind="stable")]
    gains: Counter[int] = Counter()
    for column in loose.tolist():
        gains[int(places[column])] += apart[column] * max(0.0, dearness[column])
    return _near(model, loose, [[place] for place, _ in gains.most_common()], each.size)


def _near(
    model: Model,
    loose: Any,  # noqa: ANN401 - an array of numpy
    starts: Iterable[Sequence[int]],
    size: int,
) -> Iterator[Sequence[int]]:
    """Yield about so many loose columns of places near these, except near those that were near."""
    blocks, places = model.origins
    machine = [model.makes.get(key) for key in model.places]
    at: defaultdict[int, list[int]] = defaultdict(list)
    places_of: defaultdict[int, list[int]] = defaultdict(list)
    for column in loose.tolist():
        block, place = int(blocks[column]), int(places[column])
        at[place].append(column)
        places_of[block].append(place)
    seen: set[int] = set()
    for start in starts:
        if not seen.isdisjoint(start):
            continue
        found: list[int] = []
        known, near = {*start}, deque(start)
        while near and len(found) < size:
            place = near.popleft()
            seen.add(place)
            found += at[place][:size]
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
