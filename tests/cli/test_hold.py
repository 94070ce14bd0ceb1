"""`fleet hold` keeps a machine as it is: no new work, and nothing makes it go."""

import pytest

from tests.cli.test_machine import expire
from tests.rigs.trial import ONE, TWO, WHY, Trial, fleet_yaml


def test_held_machine_is_drained_and_kept_with_its_cost(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.age(hours=1)
    for _ in range(3):
        idle.apply()

    assert idle.machines() == [ONE]
    (verdict,) = idle.plan()["workers"]
    assert (verdict["state"], verdict["reason"]) == ("draining", "held")
    assert float(verdict["cost"]) > 0


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

    plan = idle.json(*words)

    (held,) = [each for each in plan["workers"] if each["worker"] == ONE]
    assert held["verdict"] == "keep"
    assert "disk full" in held["because"]
