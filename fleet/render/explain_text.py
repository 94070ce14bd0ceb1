"""This module renders an explanation: the answer first, then its facts and reasons."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text


class ExplainedReason(Protocol):
    """Why something is as it is, and the place that decides it."""

    @property
    def because(self) -> str:
        """Return the reason in a sentence."""

    @property
    def place(self) -> str:
        """Return where it is decided, empty where nowhere."""


class Explanation(Protocol):
    """What `fleet explain` answers."""

    @property
    def headline(self) -> str:
        """Return the answer in a sentence."""

    @property
    def facts(self) -> Sequence[str]:
        """Return what was observed."""

    @property
    def reasons(self) -> Sequence[ExplainedReason]:
        """Return why, most deciding first."""

    @property
    def next_steps(self) -> Sequence[str]:
        """Return what would change it."""


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
        if reason.place:
            yield line(Span(f"    {reason.place}", Style.DIM))
    if explanation.next_steps:
        yield BLANK
        yield line(Span("what would change it:", Style.BOLD))
    for step in explanation.next_steps:
        yield line("  - ", step)
