"""A machine that its provider no longer lists: when it is gone, and what keeps it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import time_machine

from tests.rigs.trial import Trial, fleet_yaml

AT_SIM = "boot: 1s, gone: {lists: 3, after: 1s}"
POOL = "{provider: desk, machine: ccx13, image: trixie, workers: {max: 1}}"


def ticket_fleet(pool: str = POOL, desk: str = AT_SIM, queue: str = "{kind: tickets}") -> str:
    text = fleet_yaml(pools={"own": pool}, desk=desk, queue=queue)
    return text.replace("architecture: amd64}", "architecture: amd64, provides: [deb]}")


def opened(trial: Trial) -> str:
    return trial.told("ticket", "open", "--tag", "deb", "--user", "ada").split()[0]


def state_of(trial: Trial, number: str) -> str:
    said = trial.told("ticket", "show", number)
    (line,) = [each for each in said.splitlines() if each.strip().startswith("state")]
    return line.split()[1].rstrip(":")


@pytest.fixture
def serving(project: Path) -> tuple[Trial, str]:
    """Return a simulated fleet whose one machine has a ticket, and that ticket."""
    return Trial(project).begun(begin_serving), "1"


def begin_serving(trial: Trial) -> None:
    trial.write(ticket_fleet())
    number = opened(trial)
    trial.apply()
    trial.age(seconds=2)
    trial.apply()
    assert (number, state_of(trial, number)) == ("1", "ready")


def run_after_a_second(clock: time_machine.Traveller, trial: Trial, count: int = 1) -> None:
    for _ in range(count):
        trial.do("apply")
        clock.shift(1.1)


def test_absence_count_restarts_when_clock_was_ahead(
    clock: time_machine.Traveller,
    serving: tuple[Trial, str],
) -> None:
    trial, number = serving
    trial.cloud.delete("sim-1")
    trial.do("apply")
    (absence,) = trial.store().absences()
    ahead = absence.altered(since=datetime.now(UTC) + timedelta(days=1), lists=9)
    trial.store().record_absences([ahead])

    trial.do("apply")

    assert state_of(trial, number) == "ready"
    run_after_a_second(clock, trial, 2)
    assert state_of(trial, number) == "failed"
