"""This module renders an explanation: the answer first, then its facts and reasons."""

from collections.abc import Iterator

from fleet.explain import ExplainedReason, Explanation
from fleet.render import words
from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text


def explanation_to_text(explanation: Explanation, *, colour: bool) -> str:
    """Return the answer, what it rests on, and what would change it."""
    return lines_to_text(_lines(explanation), colour=colour)


def _lines(explanation: Explanation) -> Iterator[Line]:
    yield line(Span(explanation.headline, Style.BOLD))
    for fact in explanation.facts:
        yield line("  - ", fact)
    if explanation.reasons:
        yield BLANK
        yield line(Span("because:", Style.BOLD))
    for reason in explanation.reasons:
        yield line("  - ", reason.because)
        place = _place(reason)
        if place:
            yield line(Span(f"    see {place}", Style.DIM))
    if explanation.next_steps:
        yield BLANK
        yield line(Span("what would change it:", Style.BOLD))
    for step in explanation.next_steps:
        yield line("  - ", step)


def _place(reason: ExplainedReason) -> str:
    if reason.place:
        return reason.place
    return f"{words.place(reason.path)} in fleet.yaml" if reason.path else ""
