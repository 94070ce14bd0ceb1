"""`fleet hold --end` ends a hold: what was drained for it alone is given back."""

from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from fleet.model.facts import Listing
from tests.cli.test_freeze import WHY
from tests.cli.test_machine import ONE, TWO
from tests.rigs.trial import Trial


def later(minutes: int) -> time_machine.travel:
    """Let so much time pass."""
    return time_machine.travel(datetime.now(UTC) + timedelta(minutes=minutes), tick=False)


def draining(trial: Trial) -> list[str]:
    """Return the workers that get no new work."""
    listing = trial.cloud.list("trial")
    assert isinstance(listing, Listing)
    return [each.name for each in listing.workers or () if each.draining]


def reasons(trial: Trial, action: str) -> dict[str, str]:
    """Return the reason of each action of this kind that a plan has."""
    actions = trial.plan()["actions"]
    return {each["worker"]: each["reason"] for each in actions if each["action"] == action}


def test_released_machine_gets_work_again(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.apply()
    assert draining(idle) == [ONE]

    idle.told("hold", ONE, "--end")
    idle.apply()

    assert idle.machines() == [ONE, TWO]
    assert draining(idle) == []
    assert idle.plan()["actions"] == []


@pytest.mark.parametrize("ends_before", [False, True])
def test_released_busy_machine_gets_work_again(idle: Trial, *, ends_before: bool) -> None:
    idle.cloud.assign(ONE, "7")
    idle.told("hold", ONE, *WHY)
    idle.apply()
    if ends_before:
        idle.cloud.assign(ONE, None)

    idle.told("hold", ONE, "--end")
    idle.apply()

    assert draining(idle) == []
    idle.cloud.assign(ONE, None)
    idle.apply()
    assert idle.machines() == [ONE, TWO]


def test_machine_gets_work_again_when_its_hold_expires(idle: Trial) -> None:
    idle.told("hold", ONE, "--for", "5m", "--reason", "looked at")
    idle.apply()

    with later(6):
        idle.apply()

    assert draining(idle) == []
    assert idle.machines() == [ONE, TWO]


def test_idle_time_restarts_when_long_hold_ends(idle: Trial) -> None:
    idle.told("hold", ONE, "--for", "9h", "--reason", "looked at")
    idle.told("hold", TWO, "--for", "9h", "--reason", "looked at")
    idle.apply()
    with later(50):
        idle.told("hold", ONE, "--end")
        idle.apply()

    # TWO is held all the time; ONE may work, and has its idle time before it goes.
    with later(60):
        assert idle.plan()["actions"] == []
    with later(66):
        assert reasons(idle, "drain") == {ONE: "idle-too-long"}


def test_machine_drained_before_hold_is_deleted_when_released(idle: Trial) -> None:
    idle.told("machine", "delete", ONE, "--apply")
    idle.told("hold", ONE, *WHY)
    idle.apply()

    idle.told("hold", ONE, "--end")

    assert reasons(idle, "delete") == {ONE: "requested"}


def test_released_machine_of_draining_pool_is_deleted(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.apply()
    written = (idle.folder / "fleet.yaml").read_text(encoding="utf-8")
    idle.write(written.replace("image: trixie, ", "image: trixie, mode: drain, "))

    idle.told("hold", ONE, "--end")

    assert reasons(idle, "delete") == {ONE: "pool-draining"}


def test_released_machine_of_paused_pool_gets_work_after_pause(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.apply()
    written = (idle.folder / "fleet.yaml").read_text(encoding="utf-8")
    idle.write(written.replace("image: trixie, ", "image: trixie, mode: pause, "))
    idle.told("hold", ONE, "--end")

    idle.apply()
    assert draining(idle) == [ONE]
    idle.write(written)
    idle.apply()

    assert draining(idle) == []
    assert idle.machines() == [ONE, TWO]


def test_machine_is_kept_when_held_again_after_release(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.apply()
    idle.told("hold", ONE, "--end")
    idle.told("hold", ONE, *WHY)

    idle.apply()

    assert draining(idle) == [ONE]
    assert idle.plan()["actions"] == []


def test_machine_drained_without_record_is_deleted_when_released(idle: Trial) -> None:
    # As an older fleet left it: why it was drained is not recorded.
    idle.told("hold", ONE, *WHY)
    idle.cloud.drain(ONE)
    idle.apply()

    idle.told("hold", ONE, "--end")

    assert reasons(idle, "delete") == {ONE: "idle-too-long"}


def test_hold_end_names_held_machines_when_name_is_not_held(idle: Trial) -> None:
    idle.told("hold", TWO, *WHY)

    assert TWO in idle.told("hold", ONE, "--end", code=1)
