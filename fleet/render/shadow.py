"""This module writes down what a Resalloc did beside what fleet would have done."""

import json
from collections.abc import Callable, Iterable

from fleet.schema.units import write_duration
from fleet.shadow import Day, Total

_HOUR = 3600


def days_to_text(days: Iterable[Day]) -> str:
    """Return the days as a table each."""
    return "\n\n".join(map(_day, days)) or "no look was recorded yet"


def days_to_json(days: Iterable[Day]) -> str:
    """Return the days with all that is known of them."""
    return json.dumps([day.model_dump(mode="json") for day in days], indent=1)


def _day(day: Day) -> str:
    rows = [
        ("", "Resalloc", "fleet"),
        ("tickets waited, in all", *_both(day, lambda t: write_duration(round(t.waited * _HOUR)))),
        ("a ticket on average", *_both(day, lambda total: _average(total, day.opened))),
        ("machines", *_both(day, lambda total: f"{sum(total.machines.values()):.2f} h")),
        *(_pool(day, pool) for pool in sorted({*day.resalloc.machines, *day.fleet.machines})),
        ("cost", *_both(day, lambda total: f"{total.cost:.2f} {day.currency}")),
    ]
    watched = f"watched for {write_duration(day.watched)}, {day.opened:,} tickets opened"
    lines = [f"{day.date} UTC: {watched}"]
    lines += [f"  {what:<24}{theirs:>14}{ours:>14}" for what, theirs, ours in rows]
    if day.unpriced:
        lines.append(f"  without a price of ours, so cost nothing here: {', '.join(day.unpriced)}")
    return "\n".join(lines)


def _both(day: Day, write: Callable[[Total], str]) -> tuple[str, str]:
    return write(day.resalloc), write(day.fleet)


def _pool(day: Day, pool: str) -> tuple[str, str, str]:
    return (f"  {pool}", *_both(day, lambda total: f"{total.machines.get(pool, 0):.2f} h"))


def _average(total: Total, tickets: int) -> str:
    return write_duration(round(total.waited * _HOUR / tickets)) if tickets else "-"
