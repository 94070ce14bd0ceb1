"""This module solves a large component: in parts of machines and requests first, then near that.

What a cheapest answer in parts costs is proven: nothing in whole numbers costs less. Where it
serves everybody it is solved once more with whole machines, among few enough ways that this takes
no time: those that the answer in parts uses, and for each block those that are the least dearer.
What is divided is rounded, and then looked for in whole requests, near both.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor

from fleet.allocate.answer import Answer
from fleet.allocate.formulation import EPSILON, Block, Model
from fleet.allocate.programme import Bounds, Relaxed

_WAYS = 5
"""How many places each block may use that the answer in parts does not, of either kind."""
_FEWER, _MORE = 1, 3
"""How many machines fewer and more than the answer in parts each place may have."""
_ROUNDS = 2
"""How often a component is looked at again, where an answer leaves room to serve more."""


def solve_large(model: Model) -> tuple[Answer, Relaxed | None]:
    """Return an answer, and the cheapest one in parts that serves as many of each block."""
    programme = model.programme
    sums = model.everybody()
    relaxed = programme.relax(sums)
    if relaxed is not None:
        parts = programme.solve_near(_near(model, relaxed), sums, lack=model.dearest())
    else:
        sums = model.served(programme.most_of_rows(model.sizes_by_rank()))
        relaxed = programme.relax(sums)
        parts = relaxed.values if relaxed else None
    answer = Answer(model, model.in_whole_requests(parts) if parts else ())
    for _ in range(_ROUNDS):
        if answer.sums() != sums:
            sums = answer.sums()
            relaxed = programme.relax(sums)
            parts = relaxed.values if relaxed else None
        if relaxed is None or not parts:
            break
        answer = improve(model, answer, relaxed, parts)
        if answer.sums() == sums:
            return answer, relaxed
    return answer, programme.relax(answer.sums())


def improve(model: Model, answer: Answer, relaxed: Relaxed, parts: Sequence[float]) -> Answer:
    """Return an answer that serves as many of each rank at no more cost, or more; often the same.

    It is looked for in whole requests, near an answer in parts and the one that there is.
    """
    start = answer.values()
    bounds = _nearer(model, parts, _near(model, relaxed))
    for column in {*bounds, *start}:
        (least, most), value = bounds.get(column, (0.0, 0.0)), start.get(column, 0.0)
        bounds[column] = (min(least, value), max(most, value))
    values = model.programme.solve_near(bounds, answer.sums(), start=start)
    if values is None:
        return answer
    found = Answer(model, model.in_whole_requests(values))
    return min(answer, found, key=lambda each: (each.lacking(), each.cost()))


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


def _nearer(model: Model, parts: Sequence[float], near: Bounds) -> Bounds:
    """Return bounds that leave as it is whom an answer in parts does not divide."""
    bounds = {column: _around(parts[column], _FEWER, _MORE) for column in model.makes.values()}
    for block in model.blocks:
        used = {column: parts[column] for column in block.columns if parts[column] > EPSILON}
        left = sum(part - floor(part + EPSILON) for part in used.values())
        divided = left > EPSILON
        if divided:
            ways = near.keys() & set(block.columns)
            bounds |= dict.fromkeys(sorted(ways), (0.0, float(ceil(left) + 1)))
        for column, part in used.items():
            bounds[column] = _around(part, divided, divided)
    return bounds


def _around(value: float, fewer: int, more: int) -> tuple[float, float]:
    return max(0.0, floor(value + EPSILON) - fewer), float(ceil(value - EPSILON) + more)
