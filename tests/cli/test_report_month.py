"""`fleet report --month`: what a month has cost and who caused it, to the cent of the ledger."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fleet.explain.tallies import bucket_of
from fleet.model.facts import LedgerEntry
from fleet.model.history import Counted, Tally
from fleet.model.log import LogEntry
from fleet.ports import Charging, RunRecords
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
    return trial.begun(begin_october)


def begin_october(trial: Trial) -> None:
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


def told(trial: Trial, *args: str) -> dict[str, Any]:
    report: dict[str, Any] = trial.json("report", "--month", MONTH, *args)
    return report


FIGURES: dict[str, object] = {
    # in the time zone of the fleet
    "start": "2026-09-30T22:00:00Z",
    "end": "2026-10-31T23:00:00Z",
    "complete": True,
    "charged_since": None,
    "idle_seconds": 3 * 3600,
    "idle_money": "21.99999921",
    "other_packages": "0.3",
    "bound": [{"name": "pools.big.workers.max", "count": 3}],
    "never_bound": [
        "budgets.all.per_month",
        "pools.builders.workers.max",
        "tags.big.limits.total",
    ],
    "never_matched": ["never-built"],
    "needless": [{"name": "chromium", "count": 1}],
    # the distance from the lower bound, and its causes
    "planned": "5",
    "best": "4",
    "gaps": [{"name": "time limit", "money": "1"}],
}


def test_month_report_has_each_figure(recorded: Trial) -> None:
    report = told(recorded)

    assert {key: report[key] for key in FIGURES} == FIGURES
    gone = {row["name"]: row["gone"] for row in report["pools"]}
    assert gone == {"big": False, "builders": False, "old-pool": True}
    most_expensive = [HOSTILE, *(f"pkg-{nth}" for nth in range(11, 2, -1))]
    assert [row["name"] for row in report["packages"]] == most_expensive


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
    said = recorded.json("report", "--month", "2026-08")

    assert (said["charged_until"], said["runs"], said["planned"]) == (None, None, None)
    assert (said["never_bound"], said["never_matched"], said["needless"]) == (None, None, None)
    assert set(said["days"]) == {None}
    assert "no data" in recorded.told("report", "--month", "2026-08")


def test_runs_store_tallies_for_the_month_report(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS.replace("max: 4", "max: 1")}))
    trial.wait_for("1", "2")
    trial.apply()
    month = f"{datetime.now(UTC):%Y-%m}"

    report = trial.json("report", "--month", month)

    assert report["runs"] == 1
    assert report["bound"] == [{"name": "pools.builders.workers.max", "count": 1}]
    assert report["planned"] == report["best"] != "0"
    assert {"name": "create done", "count": 1} in report["changes"]
