"""`fleet freeze --end` ends the freezes of its scope, and names those that stay."""

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
