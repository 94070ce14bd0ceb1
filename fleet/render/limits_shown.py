"""This module says how many machines somebody may have, and how many are had, in shared words."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fleet.plan.limits import LimitVerdict
from fleet.render import words
from fleet.render.terminal import Line, Span, Style, line, table

HEADINGS = ("Limit", "Whose", "In use", "Given now", "Waiting", "At most")
_MOST = 12


class ShownLimit(NamedTuple):
    """One limit of somebody, in words."""

    limit: str
    whose: str
    in_use: str
    given: str
    waiting: str
    most: str


def shown(limits: Sequence[LimitVerdict], most: int = _MOST) -> tuple[list[ShownLimit], int]:
    """Return the limits that are told, and of how many nothing is said: the least used ones."""
    tight = sorted(range(len(limits)), key=lambda nth: (_left(limits[nth]), nth))
    return [_shown(limits[nth]) for nth in sorted(tight[:most])], len(limits[most:])


def limits_section(limits: Sequence[LimitVerdict]) -> Iterator[Line]:
    """Yield the lines of a table of limits; none where nothing counts to any."""
    rows, hidden = shown(limits)
    if not rows:
        return
    first, *others = HEADINGS
    heading = [Span(f"{first}s", Style.BOLD), *(Span(each.lower(), Style.DIM) for each in others)]
    cells = [[Span(f"  {row.limit}"), *(Span(each) for each in row[1:])] for row in rows]
    yield from table([heading, *cells], right=range(2, len(HEADINGS)))
    if hidden:
        yield line(f"  … and {words.many(hidden, 'limit')} with more left")


def _left(limit: LimitVerdict) -> tuple[bool, int]:
    """Return what sorts a limit: those that somebody waits for first, then what is left."""
    return not limit.waiting, limit.limit - limit.in_use - limit.given


def _shown(limit: LimitVerdict) -> ShownLimit:
    is_of_all = limit.path[-1] == "total"
    return ShownLimit(
        limit=words.place(limit.path),
        whose="all" if is_of_all else limit.who or words.NOT_KNOWN,
        in_use=str(limit.in_use),
        given=str(limit.given),
        waiting=str(limit.waiting),
        most=str(limit.limit),
    )
