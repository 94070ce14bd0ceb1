"""Boots that fail at night: the suspected cause, its command, and the order to try again."""

import json

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

TYPE = "{cores: 8, memory: 32GiB, disk: 200GiB, price: 0.10 EUR/h}"
TYPES = f"types: {{good: {TYPE}, lemon: {TYPE}}}"
DESK = f"boot: 1s, {TYPES}, faults: {{never_boots: [lemon]}}"
ON_FAILURE = "boot: {on_failure: {hold: 1, log: 50}}"
LEMON = BUILDERS.replace("workers:", f"{ON_FAILURE}, workers:").replace("ccx33", "lemon")
LEMON = LEMON.replace("max: 4", "max: 6")


def test_doctor_needs_images_extra_when_it_advises_a_build(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial.write(fleet_yaml(pools={"builders": LEMON}, desk=DESK))
    trial.wait_for("1", "2", "3")
    trial.do("apply")
    trial.age(hours=1)
    trial.do("apply")
    monkeypatch.setattr("fleet.cli.doctor._is_installed", lambda extra: extra != "images")

    found = json.loads(trial.do("doctor", "--json")[1])

    (extras,) = (each for each in found["findings"] if each["about"] == "fleet, extras")
    assert extras["result"] == "wrong"
    assert tells(extras["fix"], "fleet-reconciler[images]")
    assert [each["about"] for each in found["next_steps"]][:2] == [
        ["fleet, extras"],
        ["pool builders, image"],
    ]
