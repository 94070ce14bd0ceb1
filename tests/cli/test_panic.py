"""`fleet panic` freezes creates, drains a pool and deletes what is idle; nothing busy dies."""

from tests.cli.test_freeze import WHY
from tests.cli.test_machine import ONE
from tests.rigs.trial import Trial


def test_a_pool_is_emptied_but_for_what_is_busy(idle: Trial) -> None:
    idle.cloud.assign(ONE, "1")

    _, said = idle.do("panic", "--pool", "builders", "--confirm", "builders")

    assert ("`fleet panic`" in said, "machine delete" in said) == (True, False)
    assert idle.machines() == [ONE]
    [freeze] = idle.plan()["orders"]
    assert (freeze["stops"], freeze["reason"]) == (["creates"], "panic")
    idle.wait_for("2", "3")
    idle.apply()
    assert idle.machines() == [ONE]
    idle.cloud.assign(ONE, None)
    idle.apply()
    assert idle.machines() == []


def test_without_the_pools_name_nothing_is_changed(idle: Trial) -> None:
    before = idle.files()

    for more in ([], ["--confirm", "others"]):
        idle.told("panic", "--pool", "builders", *more, *WHY, code=2)

    assert idle.files() == before


def test_while_another_run_holds_the_lock_the_freeze_stands(idle: Trial) -> None:
    with idle.locked():
        idle.do("panic", "--pool", "builders", "--confirm", "builders", *WHY)

    assert "orders" in idle.plan()
