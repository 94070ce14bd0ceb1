"""This module solves a large component: in parts of machines and requests first, then near that.

What a cheapest answer in parts costs is proven: nothing in whole numbers costs less. Where it
serves everybody it is solved once more with whole machines, among few enough ways that this takes
no time: those that the answer in parts uses, and for each block those that are the least dearer.
What that divides is rounded, and an answer in whole requests is looked for near both.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor

from fleet.allocate.answer import Answer
from fleet.allocate.formulation import EPSILON, Block, Model
from fleet.allocate.programme import NODES_FROM, Bounds, Relaxed, Sum

_WAYS = 3
"""How many places each block may use that the answer in parts does not, of either kind."""
_FEWER, _MORE = 1, 3
"""How many machines fewer and more than the answer in parts each place may have."""


def serve_all(model: Model) -> Answer | None:
    """Return an answer near the cheapest one in parts that serves everybody; None: nothing can.

    Rounding may leave somebody out.
    """
    sums = model.everybody()
    relaxed = model.programme.relax(sums)
    if relaxed is None:
        return None
    lack = [(model.dearest(), block.size) for block in model.blocks]
    parts = model.programme.solve_near(_near(model, relaxed), sums, lack=lack)
    answer = Answer(model, model.in_whole_requests(parts) if parts else ())
    return improve(model, answer, answer.sums())


def serve_most(model: Model) -> Answer:
    """Return, rounded, an answer in parts that serves each rank the most it can have, in turn."""
    sums = model.served(model.programme.most_of_rows(model.sizes_by_rank()))
    relaxed = model.programme.relax(sums)
    return Answer(model, model.in_whole_requests(relaxed.values) if relaxed else ())


def improve(model: Model, answer: Answer, sums: Sequence[Sum]) -> Answer:
    """Return an answer that costs no more, or serves more; this one has these sums.

    It is looked for in whole requests, near this one and the cheapest one in parts.
    """
    relaxed = model.programme.relax(sums)
    if relaxed is None:
        return answer
    start, bounds = answer.values(), _near(model, relaxed)
    for column, value in start.items():
        least, most = bounds.get(column, (0.0, 0.0))
        bounds[column] = (min(least, value), max(most, value))
    values = model.programme.solve_near(bounds, sums, start=start, nodes=NODES_FROM)
    if values is None:
        return answer
    found = Answer(model, model.in_whole_requests(values))
    return min(answer, found, key=Answer.badness)


def _near(model: Model, relaxed: Relaxed) -> Bounds:
    """Return the bounds of columns near the cheapest answer in parts; those without are 0."""
    values = relaxed.values
    bounds = {column: _around(values[column], _FEWER, _MORE) for column in model.makes.values()}
    for block in model.blocks:
        used = [column for column in block.columns if values[column] > EPSILON]
        for column in (*_cheap(model, block, relaxed), *used):
            bounds[column] = (0.0, float(block.size))
    return bounds


def _cheap(model: Model, block: Block, relaxed: Relaxed) -> Iterator[int]:
    """Yield the columns of a block's least dear places, of those to be made and that exist."""
    first = block.columns[0]
    order = relaxed.dearness[first : block.columns[-1] + 1].argsort(kind="stable").tolist()
    makes = [model.places[place].makes for place in block.fits]
    for kind in (True, False):
        yield from [first + way for way in order if makes[way] is kind][:_WAYS]


def _around(value: float, fewer: int, more: int) -> tuple[float, float]:
    return max(0.0, floor(value + EPSILON) - fewer), float(ceil(value - EPSILON) + more)
