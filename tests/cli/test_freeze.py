"""`fleet freeze` stops creations or deletions at once, for a while, in a pool or in all."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from fleet.clouds.sim.machines import SimCloud
from tests.builders.sentences import tells
from tests.rigs.trial import WHY, Trial


def answer(trial: Trial, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = trial.json("explain", *words)
    return found


def end_of(said: str) -> datetime:
    found = re.search(r"until (\S+ \S+) UTC", said)
    assert found is not None, said
    return datetime.fromisoformat(f"{found[1]}+00:00")


def test_frozen_request_starts_after_the_end_of_the_freeze(trial: Trial) -> None:
    trial.wait_for("1")
    end = end_of(trial.told("freeze", "--creates", *WHY))

    found = answer(trial, "request", "1")
    shown = " ".join(trial.told("explain", "request", "1").split())

    (wait,) = (each["wait"] for each in found["suggestions"] if each["wait"])
    start = datetime.fromisoformat(wait["start"])
    assert end <= start < end + timedelta(minutes=10)
    assert abs(datetime.fromisoformat(wait["until"]) - end) < timedelta(minutes=1)
    assert "start is unknown" not in shown
    assert tells(shown, f"{end:%Y-%m-%d %H:%M}", "disk full", "`fleet freeze --end`")


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def cut(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> Trial:
    """Return a fleet whose apply was killed before the provider made the machine of request 1."""

    def die(*_: object, **__: object) -> None:
        raise Killed

    trial.wait_for("1")
    with monkeypatch.context() as patch:
        patch.setattr(SimCloud, "create", die)
        with pytest.raises(Killed):
            trial.do("apply")
    assert trial.attempts() == [("trial-builders-0001", "starting")]
    return trial


def signature_of(plan: dict[str, Any]) -> dict[str, Any]:
    (signature,) = plan["signatures"]
    found: dict[str, Any] = signature
    return found


def test_request_waits_when_freeze_withholds_its_machine(cut: Trial) -> None:
    end = end_of(cut.told("freeze", "--creates", *WHY))

    plan, found = cut.plan(), answer(cut, "request", "1")
    shown = " ".join(cut.told("explain", "request", "1").split())

    assert not signature_of(plan).get("by_create")
    (unserved,) = plan["unserved"]
    assert unserved["requests"] == ["work/1"]
    (blocked,) = unserved["blocked"]
    assert blocked["code"] == "guard"
    assert abs(datetime.fromisoformat(blocked["until"]) - end) < timedelta(minutes=1)
    assert end <= datetime.fromisoformat(found["expected"]) < end + timedelta(minutes=10)
    assert tells(shown, "disk full", "`fleet freeze --end`")
    assert "gets a new machine" not in shown
    (builders,) = [each for each in plan["pools"] if each["pool"] == "builders"]
    assert builders["served"] == 0


def test_doctor_advises_no_apply_when_another_run_creates(cut: Trial) -> None:
    def check(code: int) -> dict[str, Any]:
        found = cut.json("doctor", code=code)["findings"]
        (stack,) = [each for each in found if each["about"] == "pool builders, stack"]
        checked: dict[str, Any] = stack
        return checked

    assert check(0)["fix"] == "fleet apply"
    with cut.locked():
        assert not check(0).get("fix")
