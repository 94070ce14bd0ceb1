"""Both steps of a departure give one reason, also where fleet.yaml changes in between."""

import json
import re
from datetime import UTC, datetime, timedelta

import time_machine

from tests.rigs.trial import ONE, Trial


def lower_max(trial: Trial) -> None:
    """Allow one machine less, past the guard."""
    trial.change("workers: {max: 4}", "workers: {max: 1}")
    trial.change("providers:", "guards: {refuse: {delete: {share: 100%}}}\nproviders:")


def test_interrupted_deletion_keeps_the_reason_of_its_drain(idle: Trial) -> None:
    lower_max(idle)
    idle.apply()
    idle.cloud.disable(ONE)
    recorded = idle.folder / "seen.json"
    idle.told("observe", "--out", "seen.json")
    world = json.loads(recorded.read_text(encoding="utf-8"))
    stack = world["stacks"]["builders"]
    # The stack no longer wants it, and still holds it.
    stack["workers"] = [each for each in stack["workers"] if each["name"] != ONE]
    recorded.write_text(json.dumps(world), encoding="utf-8")

    actions = idle.json("plan", "--world", "seen.json")["actions"]

    assert {each["worker"]: each["reason"] for each in actions} == {ONE: "above-max"}


def test_new_machine_with_reused_name_has_no_old_reason(idle: Trial) -> None:
    lower_max(idle)
    idle.apply()
    idle.change("workers: {max: 1}", "workers: {max: 4}")
    idle.told("observe", "--out", "seen.json")
    recorded = (idle.folder / "seen.json").read_text(encoding="utf-8")
    newer = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    younger = re.sub(r'"created_at": ?"[^"]+"', f'"created_at": "{newer}"', recorded)
    (idle.folder / "seen.json").write_text(younger, encoding="utf-8")

    with time_machine.travel(datetime.now(UTC) + timedelta(minutes=2), tick=False):
        told = idle.told("plan", "--world", "seen.json")

    assert "[idle-too-long]" in told
