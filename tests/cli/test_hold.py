"""`fleet hold` keeps a machine as it is: no new work, and nothing makes it go."""

import pytest

from tests.cli.test_freeze import WHY
from tests.cli.test_machine import ONE, TWO
from tests.cli.test_sweep import expire
from tests.cli.test_ticket import open_ticket, ticket_yaml
from tests.rigs.trial import Trial, fleet_yaml


def test_a_held_machine_is_drained_and_stays_at_its_cost(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.age(hours=1)
    for _ in range(3):
        idle.apply()

    assert idle.machines() == [ONE]
    (verdict,) = idle.plan()["workers"]
    assert (verdict["state"], verdict["reason"]) == ("draining", "held")
    assert float(verdict["cost"]) > 0


def test_a_freeze_of_everything_still_lets_a_hold_take_work_away(idle: Trial) -> None:
    idle.told("freeze", *WHY)
    idle.told("hold", ONE, *WHY)

    idle.apply()

    states = {each["worker"]: each["state"] for each in idle.plan()["workers"]}
    assert states == {ONE: "draining", TWO: "idle"}


def test_a_held_machine_serves_nothing_that_waits(idle: Trial) -> None:
    for machine in (ONE, TWO):
        idle.told("hold", machine, *WHY)
    idle.wait_for("3", "4")

    idle.apply()

    assert len(idle.machines()) == 4


def test_a_held_machine_gets_no_ticket(trial: Trial) -> None:
    trial.write(ticket_yaml())
    open_ticket(trial)
    trial.apply()
    (machine,) = trial.machines()
    trial.told("hold", machine, *WHY)
    trial.age(minutes=2)

    trial.apply()

    assert machine in trial.machines()
    assert len(trial.machines()) == 2


def test_neither_a_person_nor_a_sweep_deletes_what_is_held(idle: Trial) -> None:
    builders = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}"
    idle.write(fleet_yaml(pools={"builders": builders}, more="expire_after: 1d\n"))
    idle.apply()
    idle.told("hold", ONE, *WHY)
    idle.apply()

    assert "disk full" in idle.told("machine", "delete", ONE, "--apply", code=4)
    expire(idle)
    for _ in range(2):
        idle.do("sweep", "--expired", "--apply")

    assert idle.machines() == [ONE]


def test_a_held_machine_outlives_its_pool(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.write(fleet_yaml(pools={}))

    for _ in range(3):
        idle.do("apply")

    assert ONE in idle.machines()


@pytest.mark.parametrize("name", ["trial-builders-0009", "trial-bilders-0001"])
def test_a_machine_that_there_is_none_of_is_told(idle: Trial, name: str) -> None:
    assert ONE in idle.told("hold", name, *WHY, code=1)
