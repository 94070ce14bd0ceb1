"""Runs that come further apart than cadence says, and runs that do not come any more."""

from datetime import datetime

import pytest

from fleet.planner.assembly import judge_heartbeat
from fleet.reconcile import reconcile
from tests.builders import NOW, a_sim_fleet, a_sim_world, ago
from tests.builders.sentences import tells

TENTH = a_sim_fleet(cadence="10m")


def warned(*minutes_ago: float) -> list[str]:
    """Return what a plan warns of when runs began so long ago."""
    runs = tuple(ago(minutes=minutes) for minutes in minutes_ago)
    plan = reconcile(TENTH, a_sim_world(runs=runs))
    return [each.message for each in plan.warnings if each.rule == "cadence-and-runs"]


@pytest.mark.parametrize(
    "minutes_ago",
    [(), (20,), (40, 30, 20, 10), (60, 40, 20), (600, 20, 10), (600, 590, 20, 10), (3, 2, 1)],
)
def test_runs_near_cadence_cause_no_warning(minutes_ago: tuple[float, ...]) -> None:
    assert warned(*minutes_ago) == []


def test_runs_far_beyond_cadence_cause_warning_with_figures() -> None:
    (message,) = warned(172, 129, 86, 43)

    assert tells(message, "cadence", "10m", "4", "43m", "cadence", "fleet apply", "cadence")


# whether anybody runs it at all


@pytest.mark.parametrize(("minutes", "alive"), [(0, True), (30, True), (31, False), (3000, False)])
def test_heartbeat_is_dead_after_three_cadences_without_run(
    minutes: float, *, alive: bool
) -> None:
    assert judge_heartbeat(TENTH, (ago(days=9), ago(minutes=minutes)), NOW).alive is alive


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ((), ("`fleet apply`", "cadence", "10m")),
        ((ago(minutes=3),), ("3m", "cadence", "10m")),
        ((ago(minutes=43),), ("43m", "cadence", "10m", "`fleet apply`")),
    ],
)
def test_heartbeat_has_reason(runs: tuple[datetime, ...], said: tuple[str, ...]) -> None:
    assert tells(judge_heartbeat(TENTH, runs, NOW).because, *said)
