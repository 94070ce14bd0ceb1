"""This module looks for a cheaper way to serve the same requests, near an answer in parts.

A large component is solved with parts of requests, and what it divides is rounded. Here it is
solved once more in whole requests, among few enough ways that this takes no time: those that the
answer in parts uses, those of the rounded answer, and the cheapest to have machines made.
"""

from math import ceil, floor

from fleet.answer import Answer
from fleet.formulation import EPSILON, Model
from fleet.programme import Solution

_WAYS = 5
"""How many of its cheapest ways to have machines made each block may use, without bounds."""
_FEWER, _MORE = 1.0, 3.0
"""How many machines fewer and more than the answer in parts each place may have."""
_Bounds = dict[int, tuple[float, float]]


def improve(model: Model, answer: Answer, solution: Solution) -> Answer:
    """Return an answer that serves as many of each block at no more cost; often the same."""
    bounds = _near(model, solution)
    _include(bounds, model, answer)
    values = model.programme.solve_near(bounds, answer.sums())
    if values is None:
        return answer
    counts = [
        {place: round(values[column]) for place, column in zip(b.fits, b.columns, strict=True)}
        for b in model.blocks
    ]
    return Answer(model, counts)


def _near(model: Model, solution: Solution) -> _Bounds:
    """Return the bounds of columns near a solution; those without are 0."""
    bounds: _Bounds = {}
    made = {place: round(solution.values[column]) for place, column in model.makes.items()}
    for place, column in model.makes.items():
        bounds[column] = (max(0.0, made[place] - _FEWER), made[place] + _MORE)
    for block in model.blocks:
        ways = []
        for (place, (share, money)), column in zip(block.fits.items(), block.columns, strict=True):
            value = solution.values[column]
            if value > EPSILON:
                bounds[column] = (max(0.0, floor(value) - 1.0), ceil(value) + 1.0)
            if place in made:
                setup = share * float(model.places[place].setup)
                # Where none is made, a whole machine comes with the first request.
                ways.append((money + setup * (1 if made[place] else 2), place, column))
        for _, _, column in sorted(ways)[:_WAYS]:
            least, _ = bounds.get(column, (0.0, 0.0))
            bounds[column] = (least, float(block.size))
    return bounds


def _include(bounds: _Bounds, model: Model, answer: Answer) -> None:
    """Widen bounds so that an answer is within them."""
    found = [(column, answer.machines.get(place, 0)) for place, column in model.makes.items()]
    for block, at in zip(model.blocks, answer.served, strict=True):
        ways = zip(block.fits, block.columns, strict=True)
        found += [(column, len(at.get(place, ()))) for place, column in ways]
    for column, value in found:
        least, most = bounds.get(column, (0.0, 0.0))
        bounds[column] = (min(least, value), max(most, value))
