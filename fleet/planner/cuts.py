"""Cut rows that hold of whole numbers and not of an answer in parts.

A column that is in parts where it has to be whole is, in the simplex method, a sum of rows. Of
such a sum, over all columns there are, whether the solver knows them or not, what whole numbers
leave is a row more: mixed-integer rounding (R. Gomory, RAND P-1885, 1960; H. Marchand and
L. Wolsey, Operations Research 49, 2001). Columns near their most count down from it.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import highspy

Entries = tuple[Any, Any]
"""Numbers of columns, and the factor of each: two arrays of numpy."""
Cut = tuple[Any, Any, float]
"""The same, and the most that they come to."""
SLACK = 1e-6
"""What the sum of a row may be off."""
_EDGE, _LEAST = 0.02, 1e-3
"""How far a part has to be from a whole number, and an answer past what is cut."""
_MOST = 20_000
"""Sums of more entries are left: they take long, and there are others."""
_NONE = 1e-9
"""What is nearer to nothing is what floating point is off."""


def cut(
    solver: "highspy.Highs",
    rows: Sequence[Entries],
    kept: Any,  # noqa: ANN401 - arrays of numpy, here and below
    values: Any,  # noqa: ANN401
    uppers: Any,  # noqa: ANN401
) -> Iterator[Cut]:
    """Yield rows that hold of whole numbers from 0 to `uppers` and not of these values.

    `rows` are those of the solver, of all columns; `kept` are the columns that it knows.
    """
    import numpy as np

    lp = solver.getLp()
    most, equal = np.array(lp.row_upper_), np.equal(lp.row_lower_, lp.row_upper_)
    sizes = np.array([len(columns) for columns, _ in rows])
    whole = (np.floor(most) == most) & [bool((factors % 1 == 0).all()) for _, factors in rows]
    for nth, column in enumerate(solver.getBasicVariables()[1]):  # type: ignore[attr-defined]  # the library's own gap
        if column < 0 or not _EDGE < values[kept[column]] % 1 < 1 - _EDGE:
            continue
        _, weights, count, some = solver.getBasisInverseRowSparse(nth)  # type: ignore[attr-defined]  # likewise
        some = np.sort(some[:count])
        some = some[abs(weights[some]) > _NONE]
        if not 0 < sizes[some].sum() <= _MOST or not np.isfinite(most[some]).all():
            continue
        weights, lengths = weights[some], sizes[some]
        columns, at = np.unique(np.concatenate([rows[n][0] for n in some]), return_inverse=True)
        factors = np.concatenate([rows[n][1] for n in some])
        takes = np.bincount(at, factors * np.repeat(weights, lengths))
        upper, own = uppers[columns], values[columns]
        down = own > upper / 2
        sign = np.where(down, -1.0, 1.0)
        room = _sum(weights, most[some]) - _sum(takes[down], upper[down])
        left = room % 1
        if not _EDGE < left < 1 - _EDGE:
            continue
        each = sign * _rounded(sign * takes, left)
        limit = room - left + _sum(each[down], upper[down])
        # What rows leave of their most counts as a column does.
        rest = np.where(whole[some], _rounded(weights, left), np.minimum(weights, 0) / (1 - left))
        rest[equal[some]] = 0
        each -= np.bincount(at, factors * np.repeat(rest, lengths))
        limit -= _sum(rest, most[some])
        used, big = own > SLACK, abs(each) > _NONE
        past = _sum(each[used], own[used]) - limit
        if past > _LEAST * np.sqrt(_sum(each[used], each[used])):
            # What is left out, and what the sums of rows may be off, cuts off no answer.
            limit -= _sum(np.minimum(each[~big], 0), upper[~big])
            yield columns[big], each[big], limit + SLACK * (1 + abs(rest).sum())


def _sum(some: Any, others: Any) -> float:  # noqa: ANN401 - arrays of numpy
    """Return the sum of products, which `@` adds up in an order that depends on the processor."""
    return float((some * others).sum())


def _rounded(each: Any, left: float) -> Any:  # noqa: ANN401 - arrays of numpy
    """Return what columns take in a rounded row, where this part of 1 is left of its most."""
    import numpy as np

    down = np.floor(each)
    return down + np.maximum(0.0, each - down - left) / (1 - left)
