"""Report the cost of a month, the causes of the cost, and the limits that were reached."""

import argparse
import re
from datetime import date, timedelta
from decimal import Decimal

from fleet.apply.config import load_config
from fleet.cli.output import show
from fleet.clock import utc_now
from fleet.errors import WrongUsage
from fleet.explain.history import HOLDS, SlotGrid, fold
from fleet.planner.ledger import Period
from fleet.ports import Console, Since
from fleet.report.html import document_to_html
from fleet.report.markdown import document_to_markdown
from fleet.schema.model import Fleet
from fleet.site.month import MonthRecords, days_of, month_at, month_report, name_month
from fleet.site.month_report import month_blocks, month_to_csv
from fleet.state.store import Store, store_of

FORMATS = ("text", "markdown", "html", "csv")
_HOUR = timedelta(hours=1)
_SLOT = timedelta(hours=4)
_LAST = 12


def month(text: str) -> date:
    """Return the first day of a month such as 2026-11; raises ArgumentTypeError if invalid."""
    found = re.fullmatch(r"(2[01][0-9]{2})-([0-9]{2})", text)
    if not found or not 1 <= int(found[2]) <= _LAST:
        raise argparse.ArgumentTypeError(f"{text!r} is no month; write it as 2026-11")
    return date(int(found[1]), int(found[2]), 1)


def run(args: argparse.Namespace, console: Console) -> int:
    """Print the report of a month; return 0."""
    fleet = load_config(args, console).fleet
    store = store_of(fleet, args.file)
    period = month_at(fleet, args.month)
    if period.start > utc_now():
        raise WrongUsage(
            f"--month {args.month:%Y-%m} is in the future; give the current or an earlier month"
        )
    report = month_report(fleet, period, _read_records(fleet, period, store))
    if args.format == "csv" and not args.json:
        console.out(month_to_csv(report))
    elif args.format == "html" and not args.json:
        count = -((report.start - report.end) // _SLOT)
        hold = HOLDS * timedelta(seconds=fleet.cadence)
        samples = store.samples(report.start - hold, report.end)
        points = [(each.at, each.fleet) for each in samples]
        # The time after the last sample is unknown.
        machines = fold(points, SlotGrid(report.start, _SLOT, count, hold))
        console.out(document_to_html(month_blocks(report, machines, _SLOT)))
    elif args.format == "markdown" and not args.json:
        console.out(document_to_markdown(month_blocks(report), level=1))
    else:
        show(args, console, report, month_blocks(report), piped=None)
    return 0


def _read_records(fleet: Fleet, period: Period, store: Store) -> MonthRecords:
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
    return MonthRecords.model_validate(
        {
            "charges": ledger.charges,
            "days": tuple(map(cost_of, days_of(fleet, period))),
            "charged_since": since,
            "charged_until": until if since is not None and since < period.end else None,
            "tallies": store.tallies(name_month(fleet, period)),
            "log": tuple(each for each in log if each.at < period.end),
        }
    )
