"""This module serves the ranks of a large component in turn: what rounding took is sought again.

How many of a rank an answer in parts can serve, those before it having theirs, is a bound. Where
an answer serves fewer, more are sought once, near both, at the expense of later ranks.
"""

from collections.abc import Sequence
from itertools import chain
from math import floor

from fleet.allocate.answer import Answer
from fleet.allocate.formulation import EPSILON, Block, Model
from fleet.allocate.neighbourhood import improve
from fleet.allocate.programme import NODES_FROM, Bounds
from fleet.demand.choices import Rank

_PAIRS = 200
"""Blocks of so many pairs of block and place may use any place: those of who is left first, then
those that share most with them."""
_WORK = 8_000
"""Ranks are sought until this many columns were looked among; who comes later is only counted."""
_DEARER = 50.0
"""How many times one of the rank that is served is worth one of a later rank."""

Longer = tuple[tuple[Rank, int], ...]
"""Ranks, and how many of each may wait longer than necessary."""


def serve_in_turn(model: Model, answer: Answer) -> tuple[Answer, Longer]:
    """Return an answer in which ranks, in turn, get as much or more, and who may lack still.

    The blocks of the model are of one rank each.
    """
    could, work = [size for _, size in model.everybody_by_rank], _WORK
    for nth, (columns, size) in enumerate(model.everybody_by_rank):
        sums = answer.sums_by_rank()
        _, served = sums[nth]
        parts = model.programme.most(columns, sums[:nth]) if served < size else None
        if parts is None:
            continue
        could[nth] = floor(sum(parts[column] for column in columns) + EPSILON)
        if could[nth] > served and work > 0:
            near = _near(model, answer, nth, parts)
            work -= len(near)
            answer = min(answer, _seek(model, answer, nth, near), key=Answer.badness)
    answer = improve(model, answer, answer.sums_by_rank())
    found = zip(model.every_rank, could, answer.sums_by_rank(), strict=True)
    return answer, tuple((rank, most - least) for rank, most, (_, least) in found if most > least)


def _seek(model: Model, answer: Answer, nth: int, near: Bounds) -> Answer:
    """Return an answer that lacks fewer of a rank, and no more of those before it, or any."""
    everybody, lack = model.everybody_by_rank, answer.lacking()
    prices = [
        (_DEARER * model.dearest(), lack[k]) if k <= nth else (model.dearest(), size)
        for k, (_, size) in enumerate(everybody)
    ]
    values = model.programme.solve_near(
        near, everybody, lack=prices, start=answer.values(), nodes=NODES_FROM
    )
    return answer if values is None else Answer(model, model.in_whole_requests(values))


def _near(model: Model, answer: Answer, nth: int, parts: Sequence[float]) -> Bounds:
    """Return bounds of what either answer uses, and of all that the nearest blocks can use."""
    uppers = model.programme.uppers
    columns = {*answer.values(), *model.makes.values()}
    columns |= {column for column, part in enumerate(parts) if part > EPSILON}
    pairs = 0
    for block in _nearest(model, answer, model.every_rank[nth]):
        pairs += len(block.columns)
        if pairs > _PAIRS:
            break
        columns |= set(block.columns)
    return {column: (0.0, uppers[column]) for column in columns}


def _nearest(model: Model, answer: Answer, rank: Rank) -> list[Block]:
    """Return the blocks: of this rank who lack somebody, then who shares most with those."""
    own = {
        block.row: model.touches(block)
        for block, left in zip(model.blocks, answer.left, strict=True)
        if left and block.rank == rank
    }
    wanted = set(chain(*own.values()))

    def order(block: Block) -> tuple[bool, float]:
        touched = model.touches(block)
        return block.row not in own, -len(touched & wanted) / len(touched)

    return sorted(model.blocks, key=order)
