"""Render what to change for a goal, what it is worth, and cost against wait."""

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from fleet.explain.history import Span
from fleet.explain.simulation.figures import limits_of_past
from fleet.explain.simulation.trials import Goal, Trial
from fleet.explain.simulation.tuning import Change, Option, Tuning
from fleet.report import words
from fleet.report.plots import HEIGHT, Tick, nice_top, stepped
from fleet.report.simulation import ANY_TIME, format_wait
from fleet.report.site.history import Key, Panel
from fleet.report.tables import Section, Tables
from fleet.schema.units import write_duration

_NOTHING = "-"
_SLOTS = 200
_TICKS = (25, 50, 75)


def tuning_tables(tuning: Tuning) -> Tables:
    """Return a tuning, with a plot of cost against wait."""
    return Tables(tuple(_headline(tuning)), tuple(_sections(tuning)), partial(_panels, tuning))


def _headline(tuning: Tuning) -> Iterator[str]:
    """Yield what is proposed, and over what it was simulated."""
    before, after = tuning.learned.before, tuning.learned.after
    asked = f"{tuning.fleet}: {_asked(tuning)}"
    if tuning.changes:
        yield (
            f"{asked}: {words.many(len(tuning.changes), 'change')}, "
            f"{words.cents(before.per_day)} -> {words.cents(after.per_day)} "
            f"{tuning.currency} per day, p{tuning.goal.share} of waits "
            f"{_reached(before.wait)} -> {_reached(after.wait)}"
        )
    else:
        yield f"{asked}: nothing to change, nothing tried is better"
    if not tuning.goal.is_met(after):
        yield "The goal is not reached: nothing tried comes nearer to it."
    end = (
        "the limit of --most or --within, so there may be better"
        if tuning.is_bounded
        else "no further step is better"
    )
    yield (
        f"{words.many(tuning.simulations, 'simulation')} over {words.time(tuning.learned.start)} "
        f"to {words.time(tuning.learned.end)}, ended by: {end}. Held back: from there to "
        f"{words.time(tuning.held_back.end)}."
    )


def _sections(tuning: Tuning) -> Iterator[Section]:
    """Yield every table."""
    money = f"{tuning.currency}/day"
    wait = f"p{tuning.goal.share}"
    if tuning.changes:
        yield Section(
            "changes",
            "Proposed",
            ("Key", "today", "proposed", f"{money} without it", f"{wait} without it"),
            tuple(map(_change_row, tuning.changes)),
            f"With all of them {words.cents(tuning.learned.after.per_day)} {money}, "
            f"{wait} {format_wait(tuning.learned.after.wait)}.",
        )
    yield _figures(tuning, money)
    yield Section(
        "frontier",
        "Cost against wait",
        ("Settings", money, "p50", wait, "in time"),
        tuple(_option_row(tuning, option) for option in tuning.frontier),
        "Of all that was simulated, what nothing else is below both in cost and in wait.",
    )
    yield Section("keys", "What may change", ("Key",), tuple((key,) for key in tuning.keys))
    limits = (
        *limits_of_past(tuning.learned.start, tuning.held_back.end),
        "What was best for this past may not be for another: compare the part that was held back",
    )
    yield Section(
        "unknown",
        "What this cannot know",
        ("Limit",),
        (),
        " ".join(f"{each}." for each in limits),
    )


def _asked(tuning: Tuning) -> str:
    goal = tuning.goal
    requests = f"{goal.only} requests" if goal.only else "requests"
    if goal.seconds is not None:
        return f"{goal.share} % of {requests} start within {write_duration(goal.seconds)}"
    return f"{requests} wait least for {words.cents(goal.budget)} {tuning.currency} per day"


def _reached(seconds: int | None) -> str:
    return format_wait(seconds, "not reached")


def _change_row(change: Change) -> tuple[str, ...]:
    rest = change.without
    if rest is None:
        return (change.key, change.before, change.after, "not allowed", "not allowed")
    figures = (words.cents(rest.per_day), _reached(rest.wait))
    return (change.key, change.before, change.after, *figures)


def _figures(tuning: Tuning, money: str) -> Section:
    sides = [tuning.learned, tuning.held_back]
    trials = [trial for side in sides for trial in (side.before, side.after)]
    goal = tuning.goal
    rows: list[tuple[str, list[str]]] = [
        (money, [words.cents(each.per_day) for each in trials]),
        ("requests that count", [str(each.requests) for each in trials]),
        ("never served", [str(each.never) for each in trials]),
        ("wait, p50", [format_wait(each.half) for each in trials]),
        (f"wait, p{goal.share}", [_reached(each.wait) for each in trials]),
        ("goal reached", ["yes" if goal.is_met(each) else "no" for each in trials]),
    ]
    if goal.seconds is not None:
        started = [_share(each) for each in trials]
        rows.insert(5, (f"started within {write_duration(goal.seconds)}", started))
    headings = ("What", "today", "proposed", "held back, today", "held back, proposed")
    return Section("figures", "Figures", headings, tuple((name, *cells) for name, cells in rows))


def _share(trial: Trial) -> str:
    return f"{100 * trial.within / trial.requests:.1f} %" if trial.requests else _NOTHING


def _option_row(tuning: Tuning, option: Option) -> tuple[str, ...]:
    trial = option.trial
    names = [f"{each.key} {each.after}" for each in option.changes]
    name = ", ".join(names) or "today"
    if trial.config == tuning.learned.after.config and names:
        name = f"proposed: {name}"
    return (
        name,
        words.cents(trial.per_day),
        format_wait(trial.half),
        format_wait(trial.wait),
        _share(trial) if tuning.goal.seconds is not None else _NOTHING,
    )


def _panels(tuning: Tuning) -> Iterator[Panel]:
    """Yield the plot of the shortest wait that each amount of money buys."""
    points = [
        (float(option.trial.per_day), option.trial.wait / 60)
        for option in tuning.frontier
        if option.trial.per_day is not None and option.trial.wait is not None
    ]
    if not points:
        return
    least, most = points[0][0], points[-1][0]
    step = (most - least) / (_SLOTS - 1)
    values = [
        [wait for money, wait in points if money <= least + nth * step + 1e-9][-1]
        for nth in range(_SLOTS)
    ]
    ticks = tuple(
        Tick(float(share), f"{least + (most - least) * share / 100:.2f}") for share in _TICKS
    )
    name = f"Wait, p{tuning.goal.share}, for {tuning.currency} per day"
    hour = timedelta(hours=1)
    plot = stepped(name, Span(ANY_TIME, hour, _SLOTS, hour), values)
    plot = plot._replace(days=ticks, mark=_mark(tuning.goal, max(values)))
    keys = [Key("", f"minutes; to the right {tuning.currency} per day")]
    if plot.mark is not None:
        keys.append(Key("max", "the target"))
    told = ", ".join(
        f"{words.cents(option.trial.per_day)} {tuning.currency}: {format_wait(option.trial.wait)}"
        for option in tuning.frontier
    )
    yield Panel("frontier-plot", "Cost against wait, as a plot", tuple(keys), plot, told)


def _mark(goal: Goal, highest: float) -> float | None:
    """Return where a target's time is drawn, in percent from above; None: out of sight."""
    if goal.seconds is None:
        return None
    share = goal.seconds / 60 / nice_top(highest)
    return round(HEIGHT - HEIGHT * share, 2) if share <= 1 else None
