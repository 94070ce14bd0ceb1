"""This module renders where the tags of a request come from, and which pools fit."""

from collections.abc import Iterator

from fleet.explain import ExplainedReason
from fleet.explain.tags import ExplainedTag, TagsExplanation
from fleet.render.explain_text import place_of
from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text

_SIGNS = {"counts": "+", "refused": "-", "not-stored": "~"}
_NOTES = {
    "counts": "",
    "refused": " (does not count)",
    "not-stored": " (not stored, so not asked)",
}


def tags_to_text(explanation: TagsExplanation, *, colour: bool) -> str:
    """Return every tag with its reasons and their lines of fleet.yaml, then the pools."""
    return lines_to_text(_lines(explanation), colour=colour)


def _lines(explanation: TagsExplanation) -> Iterator[Line]:
    yield line(Span(explanation.headline, Style.BOLD))
    for tag in explanation.tags:
        yield from _tag(tag)
    if explanation.pools:
        yield BLANK
        yield line(Span("pools:", Style.BOLD))
    for pool in explanation.pools:
        yield line("  - ", pool.because)
        yield from _place(pool, "    ")


def _tag(tag: ExplainedTag) -> Iterator[Line]:
    style = Style.PLAIN if tag.verdict == "counts" else Style.YELLOW
    yield line("  ", Span(f"{_SIGNS[tag.verdict]} {tag.tag}{_NOTES[tag.verdict]}", style))
    for reason in tag.reasons:
        yield line("      ", reason.because)
        yield from _place(reason, "      ")


def _place(reason: ExplainedReason, indent: str) -> Iterator[Line]:
    where = place_of(reason)
    if where:
        yield line(Span(f"{indent}see {where}", Style.DIM))
