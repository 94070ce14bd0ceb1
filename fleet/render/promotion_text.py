"""This module renders what a promotion moves, and which machines are replaced because of it."""

from collections.abc import Iterator

from fleet.promotion.recycling import MovedVersion, Promotion, Recycled
from fleet.render.terminal import Line, Span, Style, line, lines_to_text, title
from fleet.render.words import many


def promotion_to_text(promotion: Promotion, *, colour: bool) -> str:
    """Return each version that moves, then each pool that boots the image."""
    return lines_to_text(_lines(promotion), colour=colour)


def _lines(promotion: Promotion) -> Iterator[Line]:
    yield title(f"image {promotion.image}")
    for move in promotion.moves:
        yield line(f"  {move.version}  {move.was or 'new'} -> ", Span(_state(move), Style.BOLD))
    for pool in promotion.pools:
        yield line(f"pool {pool.pool}: {_said(pool)}")
    if not promotion.pools:
        yield line("no pool boots it")
    for unknown in promotion.unknown:
        yield line(Span(f"not known: {unknown}", Style.YELLOW))
    if not promotion.done:
        yield line("nothing was changed (--dry-run)")


def _state(move: MovedVersion) -> str:
    return f"{move.now} ({move.share}% of each pool)" if move.share else move.now


def _said(pool: Recycled) -> str:
    boots = f"new machines boot {pool.boots or 'what fleet.yaml names'}"
    if not pool.replaced:
        return f"{boots}; none of its {many(pool.held, 'machine')} is replaced"
    at = f" ({', '.join(pool.windows)})" if pool.windows else ""
    return (
        f"{boots}; {len(pool.replaced)} of its {many(pool.held, 'machine')} "
        f"{'is' if len(pool.replaced) == 1 else 'are'} replaced, {pool.at_a_time}% at a time{at}"
    )
