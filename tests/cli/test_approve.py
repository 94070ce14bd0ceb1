"""`fleet approve` lets a number of machines pass a guard, as the refusal says."""

import pytest

from tests.cli.test_freeze import WHY
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml


def test_approval_command_printed_by_refusal_permits_change(idle: Trial) -> None:
    idle.write(fleet_yaml(pools={}))
    refused = idle.told("apply", code=4)
    command = next(line.strip() for line in refused.splitlines() if "fleet approve" in line)

    idle.told(*command.replace('"', "").split()[1:])
    for _ in range(2):
        idle.apply()

    assert idle.machines() == []


@pytest.mark.parametrize("count", ["0", "-1", "10001", "many"])
def test_approval_with_invalid_count_is_wrong_usage(run_fleet: RunFleet, count: str) -> None:
    ran = run_fleet("approve", "delete", "--pool", "builders", f"--count={count}", *WHY)

    assert ran.returncode == 2
    assert "--count" in ran.stderr


def test_ended_approval_permits_no_machine(idle: Trial) -> None:
    idle.write(fleet_yaml(pools={}))
    approval = ("approve", "delete", "--pool", "builders")
    idle.told(*approval, "--count", "2", *WHY)

    idle.told(*approval, "--end")

    idle.told("apply", code=4)
    assert len(idle.machines()) == 2
    assert "approved: none" in idle.told(*approval, "--end", code=1)


def test_approval_is_wrong_usage_when_count_or_end_is_missing(idle: Trial) -> None:
    approval = ("approve", "delete", "--pool", "builders")

    idle.told(*approval, *WHY, code=2)
    idle.told(*approval, "--count", "2", code=2)
