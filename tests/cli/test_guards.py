"""Every guard and approval through the program, with real files: the plan, the refusal, exit 4."""

from datetime import UTC, date, datetime, timedelta

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

ONLY_BUILDERS = {"builders": BUILDERS}
TODAY = datetime.now(UTC).date()
TOMORROW = TODAY + timedelta(days=1)
"""Still to come when the tests run across midnight."""


def approvals(
    *counts: int, pool: str = "big", guard: str = "delete", until: date = TOMORROW
) -> str:
    lines = [
        f"{{guard: {guard}, pool: {pool}, count: {count}, reason: move {n}, expires: {until}}}"
        for n, count in enumerate(counts)
    ]
    return f"approvals: [{', '.join(lines)}]\n"


@pytest.fixture
def big(trial: Trial) -> Trial:
    """Return a trial fleet whose pool `big` has three idle workers."""
    return trial.begun(begin_big)


def begin_big(trial: Trial) -> None:
    trial.wait_for(big=["1", "2", "3"])
    trial.apply()
    trial.age(minutes=1)
    trial.wait_for()


def without_big(trial: Trial, more: str = "") -> None:
    trial.write(fleet_yaml(pools=ONLY_BUILDERS, more=more))


def test_plan_shows_refusal_and_approval_to_paste(big: Trial, run_fleet: RunFleet) -> None:
    without_big(big)

    planned = run_fleet("plan")

    assert planned.returncode == 4
    assert ": 3 to drain" in planned.stdout
    in_two_weeks = TODAY + timedelta(days=14)
    assert (
        f'- {{guard: delete, pool: big, count: 3, reason: "WHY", expires: {in_two_weeks}}}\n'
        in planned.stdout
    )


def test_approval_line_of_plan_permits_change(big: Trial, run_fleet: RunFleet) -> None:
    without_big(big)
    (line,) = big.plan()["guards"][0]["approve"]
    without_big(big, f"approvals:\n  {line}\n")

    passed = run_fleet("plan")

    assert passed.returncode == 0
    assert tells(passed.stdout, "passed", "3 of 3 machines", "pool big")
    assert tells(passed.stdout, "delete, pool big: ", "0 of 3", "3")


def test_approved_deletion_of_pool_uses_up_its_approval(big: Trial, run_fleet: RunFleet) -> None:
    without_big(big, approvals(3))

    big.apply()
    big.apply()

    assert big.machines() == []
    after = run_fleet("plan")
    assert tells(after.stdout, "delete", "pool big", "used", "3", "3")
    assert "warning[inert-approval]" in after.stdout


def test_approval_of_cost_guard_permits_its_count_of_machines(trial: Trial) -> None:
    warm = BUILDERS.replace("max: 4", "max: 4, min: 4")
    limit = "guards: {refuse: {cost_increase: 0.1 EUR/h}}\n"
    approved = limit + approvals(2, pool="builders", guard="cost_increase")
    trial.write(fleet_yaml(pools={"builders": warm}, more=approved))

    code, _ = trial.do("apply")

    assert code == 4
    assert trial.machines() == ["trial-builders-0001", "trial-builders-0002"]
