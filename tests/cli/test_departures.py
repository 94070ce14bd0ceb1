"""Both steps of a departure give one reason, also where fleet.yaml changes in between."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from tests.cli.test_machine import ONE, TWO
from tests.rigs.trial import Trial


def planned(trial: Trial) -> dict[str, tuple[str, str]]:
    """Return what a plan does with each worker, and why."""
    return {each["worker"]: (each["action"], each["reason"]) for each in trial.plan()["actions"]}


def declare(trial: Trial, old: str, new: str) -> None:
    """Replace a part of fleet.yaml."""
    path = trial.folder / "fleet.yaml"
    written = path.read_text(encoding="utf-8")
    assert old in written
    path.write_text(written.replace(old, new), encoding="utf-8")


def lower_max(trial: Trial) -> None:
    """Allow one machine less, past the guard."""
    declare(trial, "workers: {max: 4}", "workers: {max: 1}")
    declare(trial, "providers:", "guards: {refuse: {delete: {share: 100%}}}\nproviders:")


def without_departures(trial: Trial) -> dict[str, tuple[str, str]]:
    """Return what a plan does where the record of departures is not in the world."""
    world = {**trial.world(), "departures": []}
    (trial.folder / "world.json").write_text(json.dumps(world), encoding="utf-8")
    plan = json.loads(trial.told("plan", "--world", "world.json", "--json"))
    return {each["worker"]: (each["action"], each["reason"]) for each in plan["actions"]}


def test_drained_machine_is_above_max_without_drain_record(idle: Trial) -> None:
    lower_max(idle)
    idle.apply()

    assert without_departures(idle) == {ONE: ("delete", "above-max")}


def test_drained_machine_is_idle_without_drain_record(idle: Trial) -> None:
    idle.age(minutes=30)
    idle.apply()

    assert without_departures(idle)[ONE] == ("delete", "idle-too-long")


def test_one_of_two_drained_is_above_max_without_drain_record(idle: Trial) -> None:
    idle.age(minutes=30)
    idle.apply()
    lower_max(idle)

    reasons = [reason for _, reason in without_departures(idle).values()]
    assert sorted(reasons) == ["above-max", "idle-too-long"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max: 4}", "max: 4}, mode: drain"),
        ("machine: ccx33", "machine: ccx43"),
        ("max: 4}", "max: 4}, retire: {max_age: 1m}"),
        ("max: 4}", "max: 4, min: 2}"),
    ],
    ids=["mode", "machine", "age", "min"],
)
def test_idle_drain_keeps_its_reason_when_config_changes(idle: Trial, old: str, new: str) -> None:
    idle.age(minutes=30)
    idle.apply()

    declare(idle, old, new)

    reasons = planned(idle)
    assert [reasons[ONE], reasons[TWO]] == [("delete", "idle-too-long")] * 2


def test_removed_pool_keeps_reason_of_idle_drain(idle: Trial) -> None:
    idle.age(minutes=30)
    idle.apply()

    declare(idle, "  builders:", "  others:")

    assert planned(idle)[ONE] == ("delete", "idle-too-long")


def test_outdated_drain_keeps_its_reason_when_config_is_reverted(idle: Trial) -> None:
    declare(idle, "machine: ccx33", "machine: ccx43")
    first = planned(idle)
    idle.apply()

    declare(idle, "machine: ccx43", "machine: ccx33")

    gone = {each for each, (action, _) in first.items() if action == "drain"}
    assert gone
    assert {planned(idle)[each] for each in gone} == {("delete", "outdated")}


def test_requested_drain_keeps_its_reason_in_apply(idle: Trial) -> None:
    idle.told("machine", "delete", ONE, "--apply")

    assert planned(idle) == {ONE: ("delete", "requested")}


def test_disabled_worker_keeps_the_reason_of_its_drain(idle: Trial) -> None:
    lower_max(idle)
    idle.apply()

    # As a run leaves it that is killed before the machine is deleted.
    idle.cloud.disable(ONE)

    assert planned(idle) == {ONE: ("delete", "above-max")}
    idle.apply()
    assert idle.machines() == [TWO]


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

    told = idle.told("plan", "--world", "seen.json", "--json")

    actions = {each["worker"]: each["reason"] for each in json.loads(told)["actions"]}
    assert actions == {ONE: "above-max"}


def test_disabled_worker_without_a_record_is_disabled(idle: Trial) -> None:
    idle.cloud.disable(ONE)

    assert planned(idle) == {ONE: ("delete", "disabled")}


def test_drain_without_record_has_current_reason(idle: Trial) -> None:
    idle.cloud.drain(ONE)

    assert planned(idle) == {ONE: ("delete", "idle-too-long")}
    declare(idle, "max: 4}", "max: 4}, mode: drain")
    assert planned(idle)[ONE] == ("delete", "pool-draining")


def test_drain_record_is_deleted_with_its_machine(idle: Trial) -> None:
    lower_max(idle)
    for _ in range(3):
        idle.apply()

    assert idle.machines() == [TWO]
    assert "departures" not in idle.told("observe")


def test_new_machine_with_reused_name_has_no_old_reason(idle: Trial) -> None:
    lower_max(idle)
    idle.apply()
    declare(idle, "workers: {max: 1}", "workers: {max: 4}")
    idle.told("observe", "--out", "seen.json")
    recorded = (idle.folder / "seen.json").read_text(encoding="utf-8")
    newer = (datetime.now(UTC) + timedelta(minutes=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    younger = re.sub(r'"created_at": ?"[^"]+"', f'"created_at": "{newer}"', recorded)
    (idle.folder / "seen.json").write_text(younger, encoding="utf-8")

    with time_machine.travel(datetime.now(UTC) + timedelta(minutes=2), tick=False):
        told = idle.told("plan", "--world", "seen.json")

    assert "[idle-too-long]" in told
