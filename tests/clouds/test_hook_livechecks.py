"""A machine has failed when its livechecks fail several times in a row, some time apart."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fleet.model.facts import Listing, MachineState, Unknown
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.ports.engines import a_sim_worker
from tests.rigs.hook_machines import hooks_over, write_hooks

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")
STEP = timedelta(minutes=5)
FAILS = '[ "$FLEET_ID" != debian-builders-0001 ]'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return where two machines exist, of which the first does not work."""
    write_hooks(tmp_path, livecheck=FAILS)
    cloud = hooks_over(tmp_path)
    cloud.create(ONE)
    cloud.create(TWO)
    return tmp_path


def states(folder: Path, now: datetime, **provider: object) -> list[MachineState]:
    listing = hooks_over(folder, now, **provider).list("debian")
    assert isinstance(listing, Listing), listing
    return [machine.state for machine in listing.machines]


def test_machine_is_failed_after_three_failed_livechecks(folder: Path) -> None:
    firsts = [states(folder, NOW + number * STEP)[0] for number in range(3)]

    assert firsts == [MachineState.RUNNING, MachineState.RUNNING, MachineState.FAILED]
    assert states(folder, NOW + 3 * STEP) == [MachineState.FAILED, MachineState.RUNNING]


def test_number_of_failed_livechecks_is_set_in_fleet_yaml(folder: Path) -> None:
    assert states(folder, NOW, livecheck_failures=1)[0] is MachineState.FAILED


def test_frequent_livechecks_count_a_failure_once(folder: Path) -> None:
    for _ in range(5):
        assert states(folder, NOW)[0] is MachineState.RUNNING


def test_count_of_failures_restarts_after_successful_livecheck(folder: Path) -> None:
    states(folder, NOW, livecheck_failures=2)
    write_hooks(folder, livecheck="exit 0")
    states(folder, NOW + STEP, livecheck_failures=2)
    write_hooks(folder, livecheck=FAILS)

    assert states(folder, NOW + 2 * STEP, livecheck_failures=2)[0] is MachineState.RUNNING


def test_hanging_livecheck_is_a_failure(folder: Path) -> None:
    write_hooks(folder, livecheck="exec sleep 99")

    found = states(folder, NOW, livecheck_failures=1, timeouts={"livecheck": "1s"})

    assert found == [MachineState.FAILED, MachineState.FAILED]


def test_livecheck_that_cannot_start_has_no_result(folder: Path) -> None:
    listing = hooks_over(folder, livecheck=["./nothing"]).list("debian")

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, "livecheck", "./nothing", "started")


def test_livechecks_continue_when_clock_was_set_back(folder: Path) -> None:
    states(folder, NOW + timedelta(days=400), livecheck_failures=2)

    assert states(folder, NOW, livecheck_failures=2)[0] is MachineState.FAILED


def test_count_of_failures_restarts_for_reappeared_machine(folder: Path) -> None:
    states(folder, NOW, livecheck_failures=2)
    cloud = hooks_over(folder)
    cloud.delete("debian-builders-0001")
    states(folder, NOW + STEP, livecheck_failures=2)
    cloud.create(ONE)

    assert states(folder, NOW + 2 * STEP, livecheck_failures=2)[0] is MachineState.RUNNING


def test_damaged_livecheck_record_is_named(folder: Path) -> None:
    (folder / "state/livechecks.json").write_text("{")

    listing = hooks_over(folder).list("debian")

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, "state/livechecks.json", "fleet-livechecks-1")


def test_no_machine_is_failed_without_livecheck(folder: Path) -> None:
    assert set(states(folder, NOW, livecheck=None)) == {MachineState.RUNNING}
    assert not (folder / "state/livechecks.json").exists()
