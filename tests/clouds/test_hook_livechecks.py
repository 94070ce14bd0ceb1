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


def test_after_three_in_a_row_a_machine_has_failed_and_no_other(folder: Path) -> None:
    firsts = [states(folder, NOW + number * STEP)[0] for number in range(3)]

    assert firsts == [MachineState.RUNNING, MachineState.RUNNING, MachineState.FAILED]
    assert states(folder, NOW + 3 * STEP) == [MachineState.FAILED, MachineState.RUNNING]


def test_how_many_it_takes_is_said_in_fleet_yaml(folder: Path) -> None:
    assert states(folder, NOW, livecheck_failures=1)[0] is MachineState.FAILED


def test_frequent_looks_count_a_failure_once(folder: Path) -> None:
    for _ in range(5):
        assert states(folder, NOW)[0] is MachineState.RUNNING


def test_one_that_works_again_starts_at_zero(folder: Path) -> None:
    states(folder, NOW, livecheck_failures=2)
    write_hooks(folder, livecheck="exit 0")
    states(folder, NOW + STEP, livecheck_failures=2)
    write_hooks(folder, livecheck=FAILS)

    assert states(folder, NOW + 2 * STEP, livecheck_failures=2)[0] is MachineState.RUNNING


def test_a_check_that_hangs_has_failed(folder: Path) -> None:
    write_hooks(folder, livecheck="exec sleep 99")

    found = states(folder, NOW, livecheck_failures=1, timeouts={"livecheck": "1s"})

    assert found == [MachineState.FAILED, MachineState.FAILED]


def test_a_check_that_cannot_be_started_says_nothing_of_a_machine(folder: Path) -> None:
    listing = hooks_over(folder, livecheck=["./nothing"]).list("debian")

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, "livecheck", "./nothing", "started")


def test_a_clock_that_was_set_back_does_not_stop_the_checks(folder: Path) -> None:
    states(folder, NOW + timedelta(days=400), livecheck_failures=2)

    assert states(folder, NOW, livecheck_failures=2)[0] is MachineState.FAILED


def test_a_machine_of_the_same_id_that_was_gone_begins_again(folder: Path) -> None:
    states(folder, NOW, livecheck_failures=2)
    cloud = hooks_over(folder)
    cloud.delete("debian-builders-0001")
    states(folder, NOW + STEP, livecheck_failures=2)
    cloud.create(ONE)

    assert states(folder, NOW + 2 * STEP, livecheck_failures=2)[0] is MachineState.RUNNING


def test_a_memory_that_is_damaged_is_named(folder: Path) -> None:
    (folder / "state/livechecks.json").write_text("{")

    listing = hooks_over(folder).list("debian")

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, "state/livechecks.json", "fleet-livechecks-1")


def test_without_a_livecheck_none_has_failed_and_nothing_is_noted(folder: Path) -> None:
    assert set(states(folder, NOW, livecheck=None)) == {MachineState.RUNNING}
    assert not (folder / "state/livechecks.json").exists()
