"""This module renders explanations: the answer first, then facts, reasons, ways out."""

from collections.abc import Iterator
from datetime import datetime

from fleet.explain import Everything, ExplainedReason, Explanation, Group
from fleet.explain.enforcement import WORDS
from fleet.explain.unblock import Suggestion
from fleet.render import words
from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text


def explanation_to_text(explanation: Explanation, *, colour: bool) -> str:
    """Return the answer, what it rests on, and what would change it."""
    return lines_to_text(_lines(explanation), colour=colour)


def everything_to_text(everything: Everything, *, colour: bool) -> str:
    """Return what waits, a block for each group of requests that fare the same."""
    return lines_to_text(_all_lines(everything), colour=colour)


def _lines(explanation: Explanation) -> Iterator[Line]:
    yield line(Span(explanation.headline, Style.BOLD))
    for fact in explanation.facts:
        yield line("  - ", fact)
    if explanation.reasons:
        yield BLANK
        yield line(Span("because:", Style.BOLD))
    for reason in explanation.reasons:
        yield from _reason(reason, never=explanation.never)
    if explanation.next_steps or explanation.suggestions:
        yield BLANK
        yield line(Span("what would change it:", Style.BOLD))
    for suggestion in explanation.suggestions:
        yield from _suggestion(suggestion)
    for step in explanation.next_steps:
        yield line("  - ", step)


def _reason(reason: ExplainedReason, *, never: bool) -> Iterator[Line]:
    yield line("  - ", reason.because)
    by = WORDS[reason.by] if reason.by else ""
    said = "; ".join(filter(None, [f"see {place}" if (place := place_of(reason)) else "", by]))
    if said:
        yield line(Span(f"    {said}", Style.DIM))
    if never and reason.who:
        yield line(Span(f"    can change it: {reason.who}", Style.DIM))


def _suggestion(suggestion: Suggestion) -> Iterator[Line]:
    yield line("  - ", suggestion.sentence)
    for change in suggestion.changes:
        if change.yaml:
            yield line("      ", change.yaml)
        if change.place:
            yield line(Span(f"    see {change.place}", Style.DIM))


def place_of(reason: ExplainedReason) -> str:
    """Return where a reason stands in fleet.yaml; empty where it stands nowhere."""
    if reason.place:
        return reason.place
    return f"{words.place(reason.path)} in fleet.yaml" if reason.path else ""


def _all_lines(everything: Everything) -> Iterator[Line]:
    total = sum(len(group.requests) for group in everything.groups)
    verb = "waits" if total == 1 else "wait"
    waiting = f"{words.many(total, 'request')} of fleet {everything.fleet} {verb}"
    yield line(Span(waiting, Style.BOLD))
    for group in everything.groups:
        yield BLANK
        yield from _group(group)


def _group(group: Group) -> Iterator[Line]:
    count = words.many(len(group.requests), "request")
    asked = ", ".join(group.required) or "nothing"
    yield line(
        Span(f"{count} at {group.queue}, priority {group.priority}, for {asked}", Style.BOLD)
    )
    first = group.requests[0]
    names = words.some_of([answer.name for answer in group.requests])
    yield line("  ", f"{group.verdict}: {names}")
    yield line("  ", _expected([answer.expected for answer in group.requests]))
    if first.never:
        yield line("  ", "no worker of this fleet can ever run them")
        for reason in first.reasons:
            yield from _reason(reason, never=True)
    for suggestion in first.suggestions:
        yield from _suggestion(suggestion)
    for step in first.next_steps:
        yield line("  - ", step)


def _expected(starts: list[datetime | None]) -> str:
    known = sorted(start for start in starts if start is not None)
    if not known:
        return "expected start: not known"
    first, last = f"{known[0]:%Y-%m-%d %H:%M}", f"{known[-1]:%Y-%m-%d %H:%M}"
    span = f"{first} UTC" if first == last else f"{first} to {last} UTC"
    missing = len(starts) - len(known)
    return f"expected start: {span}" + (f", of {missing} not known" if missing else "")
