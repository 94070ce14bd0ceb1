"""The tables of a month's report add up in cents, whatever they hold."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from fleet.model.facts import Charge
from fleet.model.values import in_cents
from fleet.report.document import Table
from fleet.site.charges import MonthRecords, days_of, month_at, month_report
from fleet.site.money import month_to_csv, sections
from tests.builders import a_fleet

MONEY = st.decimals("-1000", "100000", places=9)
NAMES = st.none() | st.sampled_from(["a", "b", "=c"])
CHARGES = st.lists(
    st.builds(
        Charge,
        pool=st.sampled_from(["builders", "gone"]),
        scope=NAMES,
        team=NAMES,
        owner=NAMES,
        seconds=st.tuples(*[st.integers(0, 10**6)] * 3),
        money=st.tuples(MONEY, MONEY, MONEY),
    ),
    max_size=8,
)
FLEET = a_fleet()
OCTOBER = month_at(FLEET, date(2026, 10, 1))


@given(st.lists(st.decimals("-100", "100", places=9), max_size=20))
def test_amounts_in_cents_sum_to_total_within_one_cent(amounts: list[Decimal]) -> None:
    cents = in_cents(amounts)

    assert sum(cents, Decimal(0)) == sum(amounts, Decimal(0)).quantize(Decimal("0.01"))
    for exact, shown in zip(amounts, cents, strict=True):
        assert abs(exact - shown) < Decimal("0.01")


@given(CHARGES)
def test_every_grouping_sums_to_charges(charges: list[Charge]) -> None:
    report = month_report(FLEET, OCTOBER, MonthRecords(charges=tuple(charges)))

    total = sum((each.money[2] for each in charges), Decimal(0))
    assert report.money == total
    for rows in (report.pools, report.scopes, report.teams, report.owners):
        assert sum((row.money for row in rows), Decimal(0)) == total
        assert sum(row.seconds for row in rows) == report.seconds
    for section in sections(report):
        table = section.blocks[0]
        if section.id.startswith("by-") and isinstance(table, Table) and table.rows:
            *rows_, last = [Decimal(str(row.cells[1])) for row in table.rows]
            assert sum(rows_) == last == total.quantize(Decimal("0.01"))
    assert month_to_csv(report)


@given(
    st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"]),
    st.dates(date(2000, 1, 1), date(2150, 12, 31)),
)
def test_days_of_a_month_cover_it(zone: str, day: date) -> None:
    fleet = a_fleet(money={"time_zone": zone})
    month = month_at(fleet, day.replace(day=1))
    days = list(days_of(fleet, month))

    assert (days[0].start, days[-1].end) == (month.start, month.end)
    assert [each.start for each in days[1:]] == [each.end for each in days[:-1]]
    assert 28 <= len(days) <= 31
    assert month.start < datetime(day.year, day.month, 15, tzinfo=UTC) < month.end
    assert month.end - month.start > timedelta(days=27)
