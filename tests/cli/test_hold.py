"""`fleet hold` keeps a machine as it is: no new work, and nothing makes it go."""

import json

import pytest

from tests.builders.sentences import tells
from tests.cli.test_delete_expired import expire
from tests.cli.test_freeze import WHY
from tests.cli.test_machine import ONE, TWO
from tests.cli.test_ticket import open_ticket, ticket_yaml
from tests.rigs.trial import Trial, fleet_yaml


def test_held_machine_is_drained_and_kept_with_its_cost(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.age(hours=1)
    for _ in range(3):
        idle.apply()

    assert idle.machines() == [ONE]
    (verdict,) = idle.plan()["workers"]
    assert (verdict["state"], verdict["reason"]) == ("draining", "held")
    assert float(verdict["cost"]) > 0


def test_hold_drains_machine_despite_freeze(idle: Trial) -> None:
    idle.told("freeze", *WHY)
    idle.told("hold", ONE, *WHY)

    idle.apply()

    states = {each["worker"]: each["state"] for each in idle.plan()["workers"]}
    assert states == {ONE: "draining", TWO: "idle"}


def test_held_machine_serves_no_waiting_request(idle: Trial) -> None:
    for machine in (ONE, TWO):
        idle.told("hold", machine, *WHY)
    idle.wait_for("3", "4")

    idle.apply()

    assert len(idle.machines()) == 4


def test_held_machine_gets_no_ticket(trial: Trial) -> None:
    trial.write(ticket_yaml())
    open_ticket(trial)
    trial.apply()
    (machine,) = trial.machines()
    trial.told("hold", machine, *WHY)
    trial.age(minutes=2)

    trial.apply()

    assert machine in trial.machines()
    assert len(trial.machines()) == 2


def test_held_machine_survives_delete_and_sweep(idle: Trial) -> None:
    builders = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}"
    idle.write(fleet_yaml(pools={"builders": builders}, more="expire_after: 1d\n"))
    idle.apply()
    idle.told("hold", ONE, *WHY)
    idle.apply()

    assert "disk full" in idle.told("machine", "delete", ONE, "--apply", code=4)
    expire(idle)
    for _ in range(2):
        idle.do("machine", "delete", "--expired", "--apply")

    assert idle.machines() == [ONE]


@pytest.mark.parametrize(
    "words",
    [
        ("machine", "delete", TWO),
        ("machine", "delete", "--since", "1d"),
        ("machine", "delete", "--expired"),
    ],
)
def test_bulk_delete_keeps_held_machine(idle: Trial, words: tuple[str, ...]) -> None:
    idle.told("hold", ONE, *WHY)

    plan = json.loads(idle.told(*words, "--json"))

    (held,) = [each for each in plan["workers"] if each["worker"] == ONE]
    assert held["verdict"] == "keep"
    assert "disk full" in held["because"]


def test_held_machine_of_removed_pool_is_kept(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.write(fleet_yaml(pools={}))

    for _ in range(3):
        idle.do("apply")

    assert ONE in idle.machines()


@pytest.mark.parametrize("name", ["trial-builders-0009", "trial-bilders-0001"])
def test_hold_of_unknown_machine_names_known_machines(idle: Trial, name: str) -> None:
    assert ONE in idle.told("hold", name, *WHY, code=1)


def test_hold_of_unseen_machine_names_provider_with_unknown_machines(trial: Trial) -> None:
    pool = (
        "{provider: hooks, hooks: {list: ['false'], new: ['true'], delete: ['true']}, "
        "image: trixie, machine: {cores: 4, memory: 16GiB, price: 0.10 EUR/h}, workers: {max: 1}}"
    )
    trial.write(fleet_yaml(pools={"mine": pool}))

    said = trial.told("hold", "a-machine", *WHY)

    assert tells(said, "machines of provider mine are unknown: list ended with status 1")


FAILING = "boot: 1s, faults: {never_boots: [ccx33]}"
POOL = (
    "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}, "
    "boot: {deadline: 10m, on_failure: {hold: 1, log: 50}}}"
)


@pytest.fixture
def failed(trial: Trial) -> Trial:
    """Return a fleet of which two machines did not come up in time, and nothing waits."""
    return trial.begun(begin_failed)


def begin_failed(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": POOL}, desk=FAILING))
    trial.wait_for("1", "2")
    trial.apply()
    trial.age(minutes=11)
    trial.wait_for()


@pytest.mark.slow
def test_failed_boot_is_held_with_its_console(failed: Trial) -> None:
    (planned,) = failed.plan()["holds"]
    assert planned["worker"] == ONE
    failed.apply()
    failed.apply()

    assert failed.machines() == [ONE]
    assert "Kernel panic" in failed.told("machine", "console", ONE)
    (hold,) = failed.plan()["orders"]
    assert (hold["machine"], hold["by"]) == (ONE, "fleet")


@pytest.mark.slow
def test_released_failed_machine_is_deleted(failed: Trial) -> None:
    failed.apply()

    failed.told("hold", ONE, "--end")
    failed.apply()

    assert failed.machines() == []


@pytest.mark.slow
def test_later_failed_boots_are_deleted_while_one_is_held(failed: Trial) -> None:
    failed.apply()
    failed.wait_for("3")
    failed.apply()
    failed.age(minutes=11)
    failed.wait_for()

    failed.do("apply")

    assert failed.machines() == [ONE]


def test_console_shows_text_or_names_known_machines(idle: Trial) -> None:
    assert "registered" in idle.told("machine", "console", TWO)
    assert ONE in idle.told("machine", "console", "trial-builders-0009", code=1)
