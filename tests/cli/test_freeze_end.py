"""`fleet freeze --end` ends the freezes of its scope, and names those that stay."""

from tests.builders.sentences import tells
from tests.cli.test_freeze import WHY
from tests.rigs.trial import Trial


def test_freeze_of_pool_stays_when_freeze_of_fleet_is_ended(trial: Trial) -> None:
    trial.told("freeze", *WHY)
    trial.told("freeze", "--creates", *WHY)
    trial.told("freeze", "--pool", "builders", *WHY)

    said = trial.told("freeze", "--end")

    assert "fleet freeze --pool builders --end" in said
    assert [each["pool"] for each in trial.plan()["orders"]] == ["builders"]


def test_freeze_end_changes_nothing_when_not_frozen(trial: Trial) -> None:
    trial.told("freeze", "--end")
    trial.told("freeze", "--pool", "builders", "--end")

    assert "orders" not in trial.plan()


def test_plan_of_a_frozen_pool_names_the_command_that_ends_it(trial: Trial) -> None:
    trial.told("freeze", "--pool", "builders", *WHY)

    said = " ".join(trial.told("plan").split())

    assert "`fleet freeze --pool builders --end`" in said


def test_freeze_end_names_author_and_reason_of_the_order(trial: Trial) -> None:
    trial.told("freeze", *WHY)
    (order,) = trial.plan()["orders"]

    said = trial.told("freeze", "--end")

    assert tells(said, order["by"], order["reason"])
