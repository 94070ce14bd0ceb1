"""This module renders how the price catalogue differs from what providers say."""

from collections.abc import Iterator

from fleet.catalogue.prices import PriceCheck, PriceReport
from fleet.render.terminal import Line, Span, Style, line, lines_to_text
from fleet.render.words import many


def prices_to_text(report: PriceReport, *, colour: bool) -> str:
    """Return provider by provider what is the same, what differs, and what nobody asked."""
    lines = [each for check in report.checks for each in _check(check)]
    return lines_to_text(lines, colour=colour)


def _check(check: PriceCheck) -> Iterator[Line]:
    dated = (
        f", {'its own list' if check.own else 'catalogue'} of {check.as_of}" if check.as_of else ""
    )
    if check.age is not None:
        dated += f", {many(check.age, 'day')} old"
    yield line(Span(f"{check.provider} ({check.kind}{dated})", Style.BOLD))
    if check.unchecked:
        style = Style.RED if check.failed else Style.YELLOW
        yield line("  ", Span("not checked", style), f": {check.unchecked}")
    for price in check.prices:
        known = f"  {price.what}  {price.catalogue}"
        if price.differences:
            said = "; ".join(price.differences)
            yield line("  ", Span("! differs", Style.RED), f"{known}; at the provider {said}")
        else:
            yield line("  ", Span("same", Style.GREEN), known)
