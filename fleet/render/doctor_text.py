"""This module renders a check-up: what is wrong first, what works last."""

from collections import Counter
from collections.abc import Iterator, Sequence

from fleet.doctor import Diagnosis, Result, Wait
from fleet.render.terminal import BLANK, Line, Span, Style, line, lines_to_text, table, title
from fleet.schema.units import write_duration

_KINDS: tuple[tuple[Result, str, str, Style], ...] = (
    ("wrong", "Wrong", "x", Style.RED),
    ("notice", "To know", "!", Style.YELLOW),
    ("unchecked", "Not checked", "?", Style.DIM),
    ("ok", "Works", "+", Style.GREEN),
)
_COUNTED: dict[Result, str] = {
    "wrong": "wrong",
    "notice": "to know",
    "unchecked": "not checked",
    "ok": "fine",
}
_HEADINGS = (
    *("QUEUE", "ARCHITECTURE", "WAITING", "LONGEST", "MEDIAN"),
    *("RUNNING", "WORKERS", "CONNECTED", "BUSY"),
)


def diagnosis_to_text(diagnosis: Diagnosis, *, colour: bool) -> str:
    """Return the findings by kind, each with what mends it, and the waits by architecture."""
    return lines_to_text(_lines(diagnosis), colour=colour)


def _lines(diagnosis: Diagnosis) -> Iterator[Line]:
    counts = Counter(finding.result for finding in diagnosis.findings)
    told = ", ".join(f"{counts[kind]} {word}" for kind, word in _COUNTED.items())
    yield line(Span(f"Fleet {diagnosis.fleet}: {told}", Style.BOLD))
    for kind, heading, sign, style in _KINDS:
        found = [finding for finding in diagnosis.findings if finding.result == kind]
        if found:
            yield title(heading)
        for finding in found:
            yield line("  ", Span(f"{sign} ", style), f"{finding.about}: {finding.said}")
            if finding.fix:
                yield line("      fix: ", Span(finding.fix, Style.CYAN))
    if diagnosis.waits:
        yield BLANK
        yield from _waits(diagnosis.waits)


def _waits(waits: Sequence[Wait]) -> Iterator[Line]:
    rows = [[Span(heading, Style.DIM) for heading in _HEADINGS]]
    for wait in waits:
        seen = wait.machinery
        figures = (
            (seen.running, seen.registered, seen.connected, seen.busy) if seen else (None,) * 4
        )
        rows.append(
            [
                Span(wait.queue),
                Span(wait.architecture),
                Span(f"{wait.waiting:,}"),
                Span(_duration(wait.oldest_seconds)),
                Span(_duration(wait.median_seconds)),
                *(Span("-" if n is None else f"{n:,}") for n in figures),
            ]
        )
    yield from table(rows, right=range(2, len(_HEADINGS)))


def _duration(seconds: int | None) -> str:
    return "-" if seconds is None else write_duration(seconds)
