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
    assert set(states(folder, NOW, livecheck=None)) == {MachineState.RUNNING}
    assert not (folder / "state/livechecks.json").exists()

    # Frequent ones count a failure once.
    firsts = [states(folder, NOW + number * STEP)[0] for number in (0, 0, 0, 0, 1, 2)]

    assert firsts == [*[MachineState.RUNNING] * 5, MachineState.FAILED]
    assert states(folder, NOW + 3 * STEP) == [MachineState.FAILED, MachineState.RUNNING]


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


def test_livecheck_without_result_or_record_is_named(folder: Path) -> None:
    unstarted = hooks_over(folder, livecheck=["./nothing"]).list("debian")
    (folder / "state/livechecks.json").write_text("{")
    damaged = hooks_over(folder).list("debian")

    assert isinstance(unstarted, Unknown)
    assert tells(unstarted.unknown, "livecheck", "./nothing", "started")
    assert isinstance(damaged, Unknown)
    assert tells(damaged.unknown, "state/livechecks.json", "fleet-livechecks-1")
