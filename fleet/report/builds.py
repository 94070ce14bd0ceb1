"""Render the places of waiting builds, without and with a change, side by side."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.costs import BuildsCost, ComparedBuild, MovedBuilds
from fleet.explain.options import way_to
from fleet.explain.values import PlaceFacts
from fleet.report import words
from fleet.report.markdown import code, details, sentence, table
from fleet.report.terminal import Line, Span, Style, line, title
from fleet.schema.units import write_duration

_MAX_BUILDS = 20
"""Maximum builds in a report: the JSON has more."""
_MAX_UNMOVED = 5
"""Maximum builds in a terminal that the change does not move: a terminal cannot fold them."""
HEADING = "Time and money of waiting builds, on machines created now"
_OTHERS = "Time and money of other waiting builds"
_HEADINGS = ("Build", "Place", "Start", "End", "Takes", "Cost", "Note")


class _Row(NamedTuple):
    """One place of a build."""

    place: PlaceFacts
    note: str


def describe_moved(builds: MovedBuilds, currency: str) -> str:
    """Return the cost of the waiting builds that a change moves, with and without it."""
    count = builds.count
    before, after = (_sum(each, count, currency) for each in (builds.before, builds.after))
    return f"{words.many(count, 'waiting build')}: {after} ({before} without this change)"


def _sum(builds: BuildsCost, count: int, currency: str) -> str:
    if builds.unplaced == count:
        return "no machine fits in time"
    cost = _cost(builds.cost, currency)
    if not builds.unplaced:
        return cost
    return f"{cost}, no machine fits {builds.unplaced:,} of them in time"


def builds_lines(builds: Sequence[ComparedBuild], currency: str) -> Iterator[Line]:
    """Yield each build with its places; moved builds come first."""
    if builds:
        yield title(HEADING)
    moved = sum(build.is_moved for build in builds)
    shown = builds[: min(_MAX_BUILDS, moved + _MAX_UNMOVED)]
    for build in shown:
        yield line("  ", Span(build.name, Style.BOLD), f" {_describe_build(build)}".rstrip())
        for row in _rows(build):
            place = row.place
            when = f"{words.time(place.start)} to {_end(place)} ({_format_duration(place)})"
            said = f"{words.place(place)}: {when}, {_cost(place.cost, currency)}"
            yield line("      ", ", ".join(filter(None, (said, row.note))))
        for rule in words.rules_to_allow(build.after):
            yield line("      ", rule)
    if more := len(builds) - len(shown):
        yield line(f"  … and {more:,} more, in the JSON")


def builds_blocks(builds: Sequence[ComparedBuild], currency: str) -> Iterator[str]:
    """Yield Markdown of the builds; unmoved builds are folded."""
    shown = builds[:_MAX_BUILDS]
    moved = [each for each in shown if each.is_moved]
    if moved:
        yield f"#### {HEADING}"
        yield from _tables(moved, currency)
    others = [each for each in shown if not each.is_moved]
    body = [*_tables(others, currency)]
    if builds[_MAX_BUILDS:]:
        body.append(f"… and {len(builds[_MAX_BUILDS:]):,} more, in the JSON")
    if body:
        yield details(_OTHERS if moved else HEADING, "\n\n".join(body))


def _tables(builds: Sequence[ComparedBuild], currency: str) -> Iterator[str]:
    rows = [
        (
            f"{code(build.name)} {sentence(_describe_build(build))}".strip(),
            sentence(words.place(row.place)),
            words.time(row.place.start),
            _end(row.place),
            sentence(_format_duration(row.place)),
            _cost(row.place.cost, currency),
            sentence(row.note),
        )
        for build in builds
        for row in _rows(build)
    ]
    if rows:
        yield table(_HEADINGS, rows)
    rules = [
        f"- {code(build.name)}: {sentence(rule)}"
        for build in builds
        for rule in words.rules_to_allow(build.after)
    ]
    if rules:
        yield "\n".join(rules)


def _describe_build(build: ComparedBuild) -> str:
    count = words.many(build.count, "build") if build.count > 1 else ""
    return ", ".join(filter(None, (build.task, count)))


def _rows(build: ComparedBuild) -> Iterator[_Row]:
    """Yield each place: first the fitting ones without the change, then all with it."""
    fitting = {way_to(each): each for each in build.before if not each.asks}
    after = {way_to(each): each for each in build.after}
    for way in dict.fromkeys((*fitting, *after)):
        old, new = fitting.get(way), after.get(way)
        # If a place fits both ways, its figures are those with the change.
        place = old if old and (new is None or new.asks) else new
        if place is None:
            continue
        chosen = "planned" if place.is_chosen else ""
        if place is old and (new is None or new.asks):
            chosen = f"{chosen or 'only'} without this change"
        elif old is None and not place.asks:
            chosen = f"{chosen or 'only'} with this change"
        yield _Row(place, ", ".join(filter(None, (chosen, words.place_note(place)))))


def _end(place: PlaceFacts) -> str:
    return words.time(place.end) if place.end else words.UNKNOWN


def _format_duration(place: PlaceFacts) -> str:
    return words.UNKNOWN if place.seconds is None else write_duration(place.seconds)


def _cost(amount: Decimal | None, currency: str) -> str:
    return f"cost {words.UNKNOWN}" if amount is None else f"{words.bill(amount)} {currency}"
