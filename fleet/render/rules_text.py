"""This module renders whether queues have the rules of fleet.yaml."""

from collections.abc import Iterator

from fleet.exports.in_force import standing_of
from fleet.plan.rules import RulesVerdict
from fleet.render import words
from fleet.render.terminal import Line, Span, Style, line, title

_MOST = 5


def rules_section(verdicts: tuple[RulesVerdict, ...]) -> Iterator[Line]:
    """Yield a line for each place, with what differs there."""
    if verdicts:
        yield title("Rules at the queues")
    for verdict in verdicts:
        style = Style.GREEN if verdict.state == "in-force" else Style.YELLOW
        sign = "+" if verdict.state == "in-force" else "!"
        yield line(
            "  ",
            Span(f"{sign} ", style),
            f"{verdict.queue}, {verdict.place}: {standing_of(verdict)}",
        )
        for detail in rules_details(verdict):
            yield line("      ", detail)


def rules_details(verdict: RulesVerdict) -> Iterator[str]:
    """Yield the entries that differ, the first of them."""
    for each in verdict.missing[:_MOST]:
        yield f"missing: {words.place(each.path)}: {each.entry}"
    for entry in verdict.extra[:_MOST]:
        yield f"superfluous: {entry}"
    hidden = max(0, len(verdict.missing) - _MOST) + max(0, len(verdict.extra) - _MOST)
    if hidden:
        yield f"… and {words.many(hidden, 'more rule')}"
