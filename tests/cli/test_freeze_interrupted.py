"""A freeze withholds a creation that an apply has started; every command says so."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from fleet.clouds.sim.machines import SimCloud
from tests.builders.sentences import tells
from tests.cli.test_freeze_explained import WHY, answer, end_of
from tests.rigs.trial import Trial


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


def test_started_creation_serves_its_request(cut: Trial) -> None:
    plan = cut.plan()

    (action,) = plan["actions"]
    assert (action["reason"], action["serves"]) == ("interrupted", ["work/1"])
    assert signature_of(plan)["by_create"] == {"work/1": "trial-builders-0001"}
    assert not signature_of(plan).get("by_worker")
    cut.apply()
    assert cut.machines() == ["trial-builders-0001"]


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


def test_withheld_creation_ends_with_the_last_freeze(cut: Trial) -> None:
    cut.told("freeze", "--creates", "--for", "1h", "--reason", "first")
    end = end_of(cut.told("freeze", "--pool", "builders", *WHY))

    (unserved,) = cut.plan()["unserved"]

    until = datetime.fromisoformat(unserved["blocked"][0]["until"])
    assert abs(until - end) < timedelta(minutes=1)


def test_doctor_advises_no_apply_when_another_run_creates(cut: Trial) -> None:
    def check(code: int) -> dict[str, Any]:
        said = cut.told("doctor", "--json", code=code)
        found = json.loads(said[said.index("{") :])["findings"]
        (stack,) = [each for each in found if each["about"] == "pool builders, stack"]
        checked: dict[str, Any] = stack
        return checked

    assert check(0)["fix"] == "fleet apply"
    with cut.locked():
        assert not check(0).get("fix")
