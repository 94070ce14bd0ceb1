"""A used-up budget drains the workers of a queue that assigns work itself: commands."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import time_machine

from tests.builders.recording import a_job, record_fixed, write
from tests.builders.sentences import tells
from tests.rigs.clocked import Clocked, moved_clock
from tests.rigs.trial import Trial, fleet_yaml

TYPES = "types: {m8: {cores: 8, memory: 32GiB, disk: 200GiB, price: 1 EUR/h}}"
HOURLY = f"boot: 1m, billing: {{increment: 1h}}, {TYPES}"
DURATIONS = "durations: {any: 10m}\n"
START = datetime(2026, 11, 2, tzinfo=UTC)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[time_machine.Traveller]:
    monkeypatch.chdir(tmp_path)
    with moved_clock() as moved:
        yield moved


def begin(story: Clocked, *, own: str = ", budget: {per_day: 1 EUR}", named: str = "") -> None:
    """Have a machine created, which costs 1 EUR for the first hour."""
    pool = f"{{provider: desk, machine: m8, image: trixie, workers: {{max: 2}}{own}}}"
    story.write(fleet_yaml(pools={"builders": pool}, desk=HOURLY, more=DURATIONS + named))
    wait(1)
    story.run("apply")


def wait(requests: int) -> None:
    """Have this number of requests wait."""
    Trial(Path()).queue(*({"id": str(nth), "task": "sbuild"} for nth in range(requests)))


def planned(story: Clocked) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(story.run("plan", "--json"))
    return plan


def steps(plan: dict[str, Any]) -> list[tuple[str, str]]:
    return [(action["action"], action["reason"]) for action in plan["actions"]]


@pytest.mark.parametrize(
    ("own", "named", "key"),
    [
        (", budget: {per_day: 1 EUR}", "", "pools.builders.budget.per_day"),
        ("", "budgets: {all: {per_day: 1 EUR}}\n", "budgets.all.per_day"),
    ],
)
def test_idle_worker_is_drained_then_deleted_when_budget_is_used_up(
    own: str,
    named: str,
    key: str,
    clock: time_machine.Traveller,
    capsys: pytest.CaptureFixture[str],
) -> None:
    story = Clocked(clock, capsys)
    begin(story, own=own, named=named)
    story.later(10)
    wait(0)

    (worker,) = planned(story)["workers"]
    said = json.loads(story.run("explain", "worker", worker["worker"], "--json"))
    drained = steps(planned(story))
    story.run("apply")
    story.later(10)
    wait(1)
    after = planned(story)

    assert drained == [("drain", "budget-used-up")]
    assert ".".join(said["reasons"][0]["path"]) == key
    assert tells(worker["because"], "0.00 of 1", "1.00")
    assert steps(after) == [("delete", "budget-used-up")]
    assert [each["decisions"][0]["code"] for each in after["unserved"]] == ["budget"]


@pytest.mark.parametrize("days", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_budget_of_a_day_is_kept_when_queue_assigns_work(days: int, trial: Trial) -> None:
    jobs = [
        a_job(nth, START + nth * timedelta(minutes=30), 2700, expected_seconds=2700)
        for nth in range(1, days * 48)
    ]
    end, every = START + timedelta(days=days), timedelta(hours=1)
    write(trial.folder / "history", record_fixed(jobs, START, end, every=every, machines=1))
    pool = (
        "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4},"
        " budget: {per_day: 1 EUR}}"
    )
    text = fleet_yaml(pools={"builders": pool}, desk="boot: 1m", more="durations: {any: 45m}\n")
    trial.write(text + "cadence: 30m\n")

    said = trial.told("simulate", "--history", "history", "--json")
    spent = Decimal(json.loads(said[said.index("{") :])["after"]["money"])

    assert Decimal("0.9") * days < spent < Decimal("1.05") * days
