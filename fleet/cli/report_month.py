"""Report what a month has cost, who caused it, and what bound."""

import argparse
import re
from datetime import date, timedelta
from decimal import Decimal

from fleet.apply.config import load_config
from fleet.apply.timer import SystemClock
from fleet.errors import WrongUsage
from fleet.explain.history import HOLDS, Slot, Span, fold
from fleet.explain.month import (
    MonthReport,
    Recorded,
    days_of,
    month_at,
    month_report,
    name_month,
)
from fleet.planner.ledger import Period
from fleet.ports import Console, Since, Store
from fleet.report.json import value_to_json
from fleet.report.month import month_to_csv, month_to_html, month_to_markdown, month_to_text
from fleet.schema.model import Fleet
from fleet.state.places import find_places
from fleet.state.store import DatabaseStore

FORMATS = ("text", "markdown", "html", "csv")
_HOUR, _SLOT = timedelta(hours=1), timedelta(hours=4)
_LAST = 12


def month(text: str) -> date:
    """Return the first day of a month that is written as 2026-11."""
    found = re.fullmatch(r"(2[01][0-9]{2})-([0-9]{2})", text)
    if not found or not 1 <= int(found[2]) <= _LAST:
        raise argparse.ArgumentTypeError(f"{text!r} is no month; write it as 2026-11")
    return date(int(found[1]), int(found[2]), 1)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the report of a month."""
    fleet = load_config(args, console).fleet
    store = DatabaseStore(find_places(fleet, args.file).store, fleet.fleet)
    period = month_at(fleet, args.month)
    if period.start > SystemClock().now():
        raise WrongUsage(
            f"--month {args.month:%Y-%m} has not begun; the current month is reported so far"
        )
    report = month_report(fleet, period, _recorded(fleet, period, store))
    if args.json:
        text = value_to_json(report)
    elif args.format == "markdown":
        text = month_to_markdown(report)
    elif args.format == "csv":
        text = month_to_csv(report)
    elif args.format == "html":
        text = month_to_html(report, _machines(fleet, report, store), _SLOT)
    else:
        text = month_to_text(report, colour=console.colour)
    console.out(text)
    return 0


def _recorded(fleet: Fleet, period: Period, store: Store) -> Recorded:
    currency = fleet.money.currency

    def ledger_of(part: Period) -> Since:
        return Since(hour=part.end - _HOUR, day=part.start, month=part.start)

    ledger, since = store.ledger(ledger_of(period), currency), store.charged_since()
    until = ledger.charged_until

    def cost_of(day: Period) -> Decimal | None:
        if since is None or until is None or since >= day.end or until <= day.start:
            return None
        charges = store.ledger(ledger_of(day), currency).charges
        return sum((each.money[-1] for each in charges), Decimal(0))

    log = store.read_log(period.start)
    return Recorded.model_validate(
        {
            "charges": ledger.charges,
            "days": tuple(map(cost_of, days_of(fleet, period))),
            "charged_since": since,
            "charged_until": until if since is not None and since < period.end else None,
            "tallies": store.tallies(name_month(fleet, period)),
            "log": tuple(each for each in log if each.at < period.end),
        }
    )


def _machines(fleet: Fleet, report: MonthReport, store: Store) -> tuple[Slot, ...]:
    """Return the machines of the month as far as samples are kept."""
    count = -((report.start - report.end) // _SLOT)
    hold = HOLDS * timedelta(seconds=fleet.cadence)
    samples = store.samples(report.start - hold, report.end)
    points = [(each.at, each.fleet) for each in samples]
    # What comes after the last sample is unknown.
    return fold(points, Span(report.start, _SLOT, count, hold))
