"""`fleet freeze` stops creations or deletions at once, for a while, in a pool or in all."""

import pytest

from tests.cli.test_machine import ONE, TWO, WARM
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml

WHY = ("--for", "2h", "--reason", "disk full")


def test_freeze_of_creates_stops_creation_until_its_end(trial: Trial) -> None:
    trial.told("freeze", "--creates", *WHY)
    trial.wait_for("1")
    trial.apply()
    assert trial.machines() == []

    trial.told("freeze", "--end")
    trial.apply()

    assert len(trial.machines()) == 1


@pytest.mark.parametrize("shown", ["plan", "status", "apply"])
def test_freeze_is_shown_with_author_and_reason(trial: Trial, shown: str) -> None:
    trial.told("freeze", *WHY)

    said = trial.told(shown)

    assert "disk full" in said
    assert "@" in said


def test_freeze_of_deletes_keeps_idle_machines(idle: Trial) -> None:
    idle.told("freeze", "--pool", "builders", "--deletes", *WHY)
    idle.age(hours=2)
    for _ in range(3):
        idle.apply()
    assert idle.machines() == [ONE, TWO]

    idle.told("freeze", "--pool", "builders", "--end")
    for _ in range(2):
        idle.apply()

    assert idle.machines() == []


@pytest.mark.slow
def test_freeze_ends_after_its_duration(idle: Trial) -> None:
    idle.told("freeze", *WHY)
    idle.age(hours=2)
    assert "orders" in idle.plan()

    idle.end_orders()

    assert "orders" not in idle.plan()
    for _ in range(2):
        idle.apply()
    assert idle.machines() == []


def test_request_uses_unfrozen_pool_when_other_is_frozen(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": WARM, "others": WARM}))
    trial.told("freeze", "--pool", "builders", *WHY)
    trial.wait_for("1")

    trial.apply()

    assert trial.machines() == ["trial-others-0001"]


def test_freeze_of_unknown_pool_names_known_pools(trial: Trial) -> None:
    assert "builders" in trial.told("freeze", "--pool", "bilders", *WHY, code=1)


@pytest.mark.parametrize("wrong", [("--for", "0s"), ("--for", "31d"), ("--reason", " ")])
def test_freeze_without_end_or_reason_is_wrong_usage(
    run_fleet: RunFleet, wrong: tuple[str, str]
) -> None:
    given = dict(zip(WHY[::2], WHY[1::2], strict=True)) | {wrong[0]: wrong[1]}

    ran = run_fleet("freeze", *(word for pair in given.items() for word in pair))

    assert ran.returncode == 2
    assert wrong[0] in ran.stderr
