"""`fleet release` ends a hold: the machine goes like any that was drained."""

from tests.cli.test_freeze import WHY
from tests.cli.test_machine import ONE, TWO
from tests.rigs.trial import Trial


def test_a_released_machine_goes(idle: Trial) -> None:
    idle.told("hold", ONE, *WHY)
    idle.apply()

    idle.told("release", ONE)
    idle.apply()

    assert idle.machines() == [TWO]


def test_what_is_not_held_is_told_with_what_is(idle: Trial) -> None:
    idle.told("hold", TWO, *WHY)

    assert TWO in idle.told("release", ONE, code=1)
