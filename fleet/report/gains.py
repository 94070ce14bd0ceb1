"""Render packages that would build faster on a powerful machine, and unused allow-list rules."""

from collections.abc import Iterator

from fleet.explain.builds import UNUSED_AFTER, Gain, Gains, UnusedRule
from fleet.report.document import Block, Line, Section, Style, StyledText, figures, line
from fleet.schema.units import write_duration
from fleet.words import figures as words

_HEADINGS = ("package", "a month", "here", "there", "cost here", "there", "h/{}")


def gains_blocks(found: Gains) -> Iterator[Block]:
    """Yield the packages with figures and proposed rules, then the unused rules."""
    seconds = int((found.until - found.since).total_seconds())
    span = write_duration(seconds) if seconds else "one moment"
    yield line(
        StyledText(f"Fleet {found.fleet}: {found.builds:,} named builds in {span}", Style.BOLD),
        f" ({words.many(found.moments, 'moment')}), {found.allowed:,} of them allowed by rules",
    )
    if found.unread:
        yield line(f"  a queue was unread in {words.many(found.unread, 'moment')}")
    if found.not_known:
        builds = words.many(found.not_known, "build")
        yield line(f"  {builds} not compared: duration or cost unknown")
    title = f"Packages that would gain most time per {found.currency} on a powerful machine"
    yield Section(title, [*_packages(found)] if found.packages else [line("  none")])
    days = write_duration(int(UNUSED_AFTER.total_seconds()))
    title = f"Rules that no build used in {days if found.is_long_enough else span}"
    yield Section(title, [*_draw_unused_rules(found, span, days)])


def _packages(found: Gains) -> Iterator[Block]:
    headings = [each.format(found.currency) for each in _HEADINGS]
    yield figures(headings, map(_row, found.packages))
    for gain in found.packages:
        yield line(f"  {gain.name}, on {gain.type} of {gain.pool}:")
        yield line(f"    powerful: [{gain.rule}]")
    if found.more:
        yield line(f"  … and {words.many(found.more, 'more package')}, all with less gain")


def _row(gain: Gain) -> list[str]:
    about = f"{gain.name} ({gain.task})" if gain.task else gain.name
    hours = None if gain.gain_per_money is None else gain.gain_per_money / 3600
    return [
        about,
        words.UNKNOWN if gain.month is None else f"{gain.month:,.1f}",
        write_duration(gain.seconds_here),
        write_duration(gain.seconds_there),
        f"{gain.cost_here:,.2f}",
        f"{gain.cost_there:,.2f}",
        "costs no more" if hours is None else f"{hours:,.1f}",
    ]


def _draw_unused_rules(found: Gains, span: str, days: str) -> Iterator[Line]:
    if not found.is_long_enough:
        yield line(f"  only {span} recorded: a rule counts as unused after {days}")
    for rule in found.unused:
        yield line(f"  - {_rule(rule)}")
        if rule.place:
            yield line(StyledText(f"    see {rule.place}", Style.DIM))
    if not found.unused:
        yield line("  none")


def _rule(rule: UnusedRule) -> str:
    parts = [rule.match]
    parts += [f"task {rule.task}"] if rule.task else []
    parts += [f"ask {rule.contact} whether it is still needed"] if rule.contact else []
    return ", ".join(parts)
