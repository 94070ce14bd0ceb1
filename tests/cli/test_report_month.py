"""`fleet report --month`: what a month has cost and who caused it, to the cent of the ledger."""

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from fleet.explain.tallies import bucket_of
from fleet.model.facts import LedgerEntry
from fleet.model.history import Counted, Tally
from fleet.model.log import LogEntry
from fleet.ports import Charging, RunRecords, StackRecord
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.builders.sentences import tells
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

MONTH = "2026-10"
START = datetime(2026, 9, 30, 22, tzinfo=UTC)
"""When October began in Berlin."""
END = datetime(2026, 10, 31, 23, tzinfo=UTC)
HOSTILE = "=<script>alert(1)</script>|x"
MORE = """\
money: {time_zone: Europe/Berlin}
budgets: {all: {per_month: 500 EUR}}
powerful:
  - {match: "chromium", ask: [big], reason: "it is large"}
  - {match: "never-built", ask: [big], reason: "it is large"}
tags: {big: {on_demand: true, limits: {total: 2}}}
"""


def entry(hour: datetime, pool: str, money: str, **payer: object) -> LedgerEntry:
    return LedgerEntry.model_validate(
        {"hour": hour, "pool": pool, "seconds": 3600, "money": money} | payer
    )


def tally(kind: str, name: str = "", **figures: int) -> Tally:
    return Tally.model_validate(
        {"month": MONTH, "kind": kind, "name": name} | ({"count": 1} | figures)
    )


@pytest.fixture
def recorded(trial: Trial) -> Trial:
    """Return a fleet that worked in October, and before and after it."""
    trial.write(fleet_yaml(more=MORE))
    store = trial.store()
    payers: list[dict[str, object]] = [
        {"scope": "debian", "team": "web", "owner": "ann", "tags": ("big",)},
        {"scope": "debian", "team": HOSTILE},
        {"scope": "kali"},
        {},
    ]
    entries = [
        entry(START - timedelta(hours=1), "builders", "99"),
        *(
            entry(START + timedelta(days=nth, hours=nth), pool, f"{nth}.333333{nth:02}", **payer)
            for nth, (pool, payer) in enumerate(
                (pool, payer) for pool in ("builders", "big", "old-pool") for payer in payers
            )
        ),
        entry(END - timedelta(hours=1), "big", "0.005", scope="debian"),
        entry(END, "big", "77"),
    ]
    packages = [
        tally("package", f"pkg-{nth}", seconds=600, nanos=nth * 10**8) for nth in range(12)
    ]
    store.charge(
        Charging(
            since=None,
            until=END + timedelta(hours=1),
            currency="EUR",
            entries=tuple(entries),
            tallies=(*packages, tally("package", HOSTILE, nanos=10**10)),
        )
    )
    waits = [
        tally("wait", f"ordinary {bucket_of(seconds)}", count=count)
        for seconds, count in ((60, 90), (3600, 10))
    ]
    counted = (
        tally("run", count=40),
        tally("bound", "pools.big.workers.max", count=3),
        tally("rule", "chromium", count=2),
        tally("optimum", "planned", nanos=5 * 10**9),
        tally("optimum", "bound", nanos=4 * 10**9),
        tally("gap", "time limit", nanos=10**9),
        tally("powerful", "chromium", count=2),
        tally("needless", "chromium", count=1),
        tally("unseen", count=7),
        *waits,
    )
    log = [LogEntry(at=START, kind="create", outcome="done"), LogEntry(at=END, kind="drain")]
    store.record_run(
        started=START,
        ended=START,
        plan="",
        outcome="{}",
        noted=RunRecords(log, Counted(counted, {})),
    )
    return trial


def told(trial: Trial, *args: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(trial.told("report", "--month", MONTH, "--json", *args))
    return report


def test_each_grouping_of_costs_sums_to_ledger(recorded: Trial) -> None:
    report = told(recorded)

    ledger = sum((Decimal(f"{n}.333333{n:02}") for n in range(12)), Decimal("0.005"))
    assert Decimal(report["money"]) == ledger
    for grouping in ("pools", "scopes", "teams", "owners"):
        assert sum(Decimal(row["money"]) for row in report[grouping]) == ledger
        assert sum(row["seconds"] for row in report[grouping]) == report["seconds"] == 13 * 3600
    assert sum(Decimal(day) for day in report["days"]) == ledger
    assert len(report["days"]) == 31


def test_month_is_in_time_zone_of_fleet(recorded: Trial) -> None:
    report = told(recorded)

    assert (report["start"], report["end"]) == ("2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z")
    assert (report["complete"], report["charged_since"]) == (True, None)


def test_month_report_counts_unused_machine_time_as_idle(recorded: Trial) -> None:
    report = told(recorded)

    assert report["idle_seconds"] == 3 * 3600
    assert Decimal(report["idle_money"]) == Decimal("21.99999921")


def test_month_report_marks_removed_pool(recorded: Trial) -> None:
    gone = {row["name"]: row["gone"] for row in told(recorded)["pools"]}

    assert gone == {"big": False, "builders": False, "old-pool": True}


def test_month_report_lists_ten_most_expensive_packages(recorded: Trial) -> None:
    report = told(recorded)

    names = [row["name"] for row in report["packages"]]
    assert names == [HOSTILE, *(f"pkg-{nth}" for nth in range(11, 2, -1))]
    assert Decimal(report["other_packages"]) == Decimal("0.3")


def test_waits_are_accurate_to_a_tenth(recorded: Trial) -> None:
    waits = {row["name"]: row for row in told(recorded)["waits"]}

    assert waits["powerful"] == {"name": "powerful", "count": 0, "half": None, "most": None}
    ordinary = waits["ordinary"]
    assert ordinary["count"] == 100
    assert 60 <= ordinary["half"] <= 66
    assert 3600 <= ordinary["most"] <= 3960


def test_month_report_lists_binding_limits_and_unused_rules(recorded: Trial) -> None:
    report = told(recorded)

    assert report["bound"] == [{"name": "pools.big.workers.max", "count": 3}]
    assert report["never_bound"] == [
        "budgets.all.per_month",
        "pools.builders.workers.max",
        "tags.big.limits.total",
    ]
    assert report["never_matched"] == ["never-built"]
    assert report["needless"] == [{"name": "chromium", "count": 1}]


def test_difference_from_lower_bound_has_causes(recorded: Trial) -> None:
    report = told(recorded)

    assert (report["planned"], report["best"]) == ("5", "4")
    assert report["gaps"] == [{"name": "time limit", "money": "1"}]


def test_rows_of_every_table_sum_to_total_in_cents(recorded: Trial) -> None:
    text = recorded.told("report", "--month", MONTH, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))

    for noun in ("pool", "scope", "team", "owner"):
        cents = {
            row["name"]: Decimal(row["value"])
            for row in rows
            if row["section"] == f"by-{noun}" and row["column"] == "EUR"
        }
        total = cents.pop("all")
        assert sum(cents.values()) == total == Decimal("70.00")
    packages = [r["value"] for r in rows if r["section"] == "packages" and r["column"] == "EUR"]
    assert sum(map(Decimal, packages)) == Decimal("70.00")


def test_hostile_names_are_escaped_in_every_output(recorded: Trial) -> None:
    def shown(form: str) -> str:
        return recorded.told("report", "--month", MONTH, "--format", form)

    assert "<script" not in shown("html")
    assert "'=<script>" in shown("csv")
    lines = [each for each in shown("markdown").splitlines() if "<script" in each]
    assert lines
    assert all(re.match(r"\| `=<script>[^`|]*` \|( [0-9.]+ \|){2}$", each) for each in lines)


def test_page_has_plots_and_no_external_requests(recorded: Trial) -> None:
    page = recorded.told("report", "--month", MONTH, "--format", "html")

    assert page.count('<svg class="plot"') == 1
    assert not re.search(r'(src|href)="(?!#)', page)


def test_month_without_data_is_unknown(recorded: Trial) -> None:
    said = json.loads(recorded.told("report", "--month", "2026-08", "--json"))

    assert (said["charged_until"], said["runs"], said["planned"]) == (None, None, None)
    assert (said["never_bound"], said["never_matched"], said["needless"]) == (None, None, None)
    assert set(said["days"]) == {None}
    assert "no data" in recorded.told("report", "--month", "2026-08")


def test_month_cost_is_unknown_when_runs_have_no_charges(
    trial: Trial,
) -> None:
    trial.wait_for("1")
    trial.told("apply")

    headline = trial.told("report", "--month", f"{datetime.now(UTC):%Y-%m}").splitlines()[0]

    assert headline.endswith(": cost unknown")


def test_future_month_is_refused(trial: Trial) -> None:
    trial.told("report", "--month", "2199-01", code=2)


@pytest.mark.parametrize("text", ["2026", "2026-13", "november", "2026-00"])
def test_report_month_is_wrong_usage_when_not_a_month(trial: Trial, text: str) -> None:
    with pytest.raises(SystemExit):
        trial.do("report", "--month", text)


def test_report_refuses_month_options_without_month(trial: Trial) -> None:
    trial.told("report", "--json", "plan.json", code=2)


def test_runs_store_tallies_for_the_month_report(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS.replace("max: 4", "max: 1")}))
    trial.wait_for("1", "2")
    trial.apply()
    month = f"{datetime.now(UTC):%Y-%m}"

    report = json.loads(trial.told("report", "--month", month, "--json"))

    assert report["runs"] == 1
    assert report["bound"] == [{"name": "pools.builders.workers.max", "count": 1}]
    assert report["planned"] == report["best"] != "0"
    assert {"name": "create done", "count": 1} in report["changes"]


def test_renamed_pool_keeps_its_costs(recorded: Trial) -> None:
    store = Store(sqlite_url(recorded.folder / ".fleet/store.db"), "trial")
    record = {"name": "s", "provider": "desk", "project": "sim", "engine": "embedded", "serial": 1}
    for pool in ("old-pool", "builders"):
        store.record_stack(StackRecord.model_validate(record | {"pool": pool}))

    assert {row["name"] for row in told(recorded)["pools"]} == {"big", "builders"}


def test_month_in_another_currency_is_refused(recorded: Trial) -> None:
    in_dollars = "money: {currency: USD, exchange: {EUR: {rate: 1.1, as_of: 2026-10-01}}, "
    recorded.write(fleet_yaml(more=MORE.replace("money: {", in_dollars)))

    refused = recorded.told("report", "--month", MONTH, code=1)
    recorded.write(fleet_yaml(more=MORE))

    assert tells(refused, "recorded in EUR", "is USD", "write EUR")
    assert "EUR" in recorded.told("report", "--month", MONTH)
