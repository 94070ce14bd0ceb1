"""Compare the machines, times and costs of waiting builds without and with a change."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from fleet.explain.costs import BuildsCost, ComparedBuild, MovedBuilds
from fleet.explain.options import way_to
from fleet.model.machine_facts import PlaceFacts
from fleet.report.document import (
    Block,
    Column,
    ColumnKind,
    Form,
    Section,
    Style,
    StyledText,
    Table,
    line,
    row,
)
from fleet.schema.units import write_duration
from fleet.words import figures as words

_MAX_BUILDS = 20
"""Maximum builds in a report; the JSON has all builds."""
_MAX_SHOWN = 5
"""Maximum builds in a terminal, so that the report fits on a screen."""


class _BuildRow(NamedTuple):
    """One machine that a build may run on, with a note."""

    place: PlaceFacts
    note: str


def describe_moved(builds: MovedBuilds, currency: str, stopped: int) -> str:
    """Return the cost and time of affected waiting builds with and without a change, as text.

    `stopped` builds get no machine with the change.
    """
    count = builds.count
    before, after = (_sum(each, count, currency) for each in (builds.before, builds.after))
    which = "this build" if count == 1 else f"these {count:,} builds"
    if stopped >= count > builds.after.unplaced:
        which += ", if they start" if count > 1 else ", if it starts"
    return f"{which}: {after} ({before} without this change)"


def _sum(builds: BuildsCost, count: int, currency: str) -> str:
    if builds.unplaced == count:
        return "no machine fits"
    cost = _cost(builds.cost, currency)
    if builds.seconds:
        longest = "" if count == 1 else "the longest "
        cost += f", {longest}{write_duration(builds.seconds)}"
    if not builds.unplaced:
        return cost
    return f"{cost}, no machine fits {builds.unplaced:,} of them"


def builds_section(builds: Sequence[ComparedBuild], currency: str) -> Section:
    """Return a table of affected builds and their possible machines, and count the others."""
    moved = [build for build in builds if build.is_moved]
    rows = []
    for nth, build in enumerate(moved[:_MAX_BUILDS]):
        form = Form.ALL if nth < _MAX_SHOWN else Form.FULL
        name = line(StyledText(build.name, Style.BOLD), f" {_describe_build(build)}".rstrip())
        for option in _rows(build):
            place = option.place
            rows.append(
                row(
                    name,
                    words.place(place),
                    words.time(place.start),
                    words.time(place.end) if place.end else words.UNKNOWN,
                    words.UNKNOWN if place.seconds is None else write_duration(place.seconds),
                    _cost(place.cost, currency),
                    option.note,
                    form=form,
                )
            )
    for most, form in ((_MAX_SHOWN, Form.BRIEF), (_MAX_BUILDS, Form.FULL)):
        if (hidden := len(moved) - min(_MAX_BUILDS, most)) > 0:
            rows.append(row("", f"… and {hidden:,} more, in the JSON", form=form))
    columns = (
        Column("Build", ColumnKind.GROUP),
        Column("place"),
        Column("start", fold=1),
        Column("end"),
        Column("takes", fold=2),
        Column("cost", ColumnKind.FIGURE),
        Column("note", ColumnKind.PROSE),
    )
    title = "Time and money of the builds that this change moves, on machines created now"
    blocks: list[Block] = [Table(columns, rows)]
    if moved and (others := sum(build.count for build in builds if not build.is_moved)):
        many = words.many(others, "other waiting build")
        blocks.append(line(f"Not moved: {many}, see the JSON"))
    return Section(title, blocks)


def _describe_build(build: ComparedBuild) -> str:
    count = words.many(build.count, "build") if build.count > 1 else ""
    return ", ".join(filter(None, (build.task, count)))


def _rows(build: ComparedBuild) -> Iterator[_BuildRow]:
    """Yield the possible machines of a build: those that fit without the change, then others."""
    fitting = {way_to(each): each for each in build.before if not each.asks}
    after = {way_to(each): each for each in build.after}
    for way in dict.fromkeys((*fitting, *after)):
        old, new = fitting.get(way), after.get(way)
        # If a machine fits without and with the change, show the figures with the change.
        place = old if old and (new is None or new.asks) else new
        if place is None:
            continue
        chosen = "planned" if place.is_chosen else ""
        if place is old and (new is None or new.asks):
            chosen = f"{chosen or 'only'} without this change"
        elif old is None and not place.asks:
            chosen = f"{chosen or 'only'} with this change"
        yield _BuildRow(place, ", ".join(filter(None, (chosen, words.place_note(place)))))


def _cost(amount: Decimal | None, currency: str) -> str:
    return f"cost {words.UNKNOWN}" if amount is None else f"{words.bill(amount)} {currency}"
