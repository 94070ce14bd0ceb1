"""Both steps of a departure give one reason, also where fleet.yaml changes in between."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from tests.rigs.trial import ONE, TWO, Trial


def planned(trial: Trial) -> dict[str, tuple[str, str]]:
    """Return what a plan does with each worker, and why."""
    return {each["worker"]: (each["action"], each["reason"]) for each in trial.plan()["actions"]}


def lower_max(trial: Trial) -> None:
    """Allow one machine less, past the guard."""
    trial.change("workers: {max: 4}", "workers: {max: 1}")
    trial.change("providers:", "guards: {refuse: {delete: {share: 100%}}}\nproviders:")


def without_departures(trial: Trial) -> dict[str, tuple[str, str]]:
    """Return what a plan does where the record of departures is not in the world."""
    world = {**trial.world(), "departures": []}
    (trial.folder / "world.json").write_text(json.dumps(world), encoding="utf-8")
    actions = trial.json("plan", "--world", "world.json")["actions"]
    return {each["worker"]: (each["action"], each["reason"]) for each in actions}


@pytest.mark.parametrize(
    ("idle_for", "max_falls", "reasons"),
    [
        (0, True, ["above-max"]),
        (30, False, ["idle-too-long", "idle-too-long"]),
        (30, True, ["above-max", "idle-too-long"]),
    ],
    ids=["above max", "idle", "one of two above max"],
)
def test_drained_machine_has_current_reason_without_drain_record(
    idle: Trial, idle_for: int, reasons: list[str], *, max_falls: bool
) -> None:
    idle.age(minutes=idle_for)
    if not idle_for:
        lower_max(idle)
    idle.apply()
    if max_falls and idle_for:
        lower_max(idle)

    assert sorted(reason for _, reason in without_departures(idle).values()) == reasons


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max: 4}", "max: 4}, mode: drain"),
        ("  builders:", "  others:"),
        ("machine: ccx33", "machine: ccx43"),
        ("max: 4}", "max: 4}, retire: {max_age: 1m}"),
        ("max: 4}", "max: 4, min: 2}"),
    ],
    ids=["mode", "pool", "machine", "age", "min"],
)
def test_idle_drain_keeps_its_reason_when_config_changes(idle: Trial, old: str, new: str) -> None:
    idle.age(minutes=30)
    idle.apply()

    idle.change(old, new)

    reasons = planned(idle)
    assert [reasons[ONE], reasons[TWO]] == [("delete", "idle-too-long")] * 2


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
