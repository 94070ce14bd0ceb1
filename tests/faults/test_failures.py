"""What fails is not tried again and again: provider, quota, errors and boots, over many runs."""

import pytest

from tests.builders.sentences import tells
from tests.rigs.trial import BIG, BUILDERS, Trial, fleet_yaml

SPOT = (
    "boot: 1s, types: {cheap: {cores: 8, memory: 32GiB, disk: 80GiB, price: 0.09 EUR/h, "
    "spot: 0.02 EUR/h, spot_stock: 1}}"
)
EITHER = (
    "{provider: desk, machine: {type: cheap, market: [spot, on-demand]}, image: trixie, "
    "workers: {max: 4}}"
)
STOP = "guards: {boot_failures: {stop_after: 2, of_last: 3}}"


def because(trial: Trial, pool: str = "builders") -> str:
    return next(str(each["because"]) for each in trial.plan()["pools"] if each["pool"] == pool)


@pytest.mark.slow
def test_out_of_stock_type_is_not_retried_before_its_time(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, desk="faults: {create: out-of-stock}"))
    trial.wait_for("1")

    trial.do("apply")
    trial.do("apply")
    assert trial.attempts() == [("trial-builders-0001", "out-of-stock")]
    trial.age(minutes=3)
    trial.do("apply")

    assert len(trial.attempts()) == 2
    assert tells(because(trial), "desk", "stock", "ccx33", "2 runs")


def test_request_uses_next_pool_when_first_is_out_of_stock(trial: Trial) -> None:
    types = (
        "boot: 1s, types: {rare: {cores: 2, memory: 8GiB, disk: 40GiB, price: 0 EUR/h, stock: 0}}"
    )
    rare = BUILDERS.replace("ccx33", "rare")
    trial.write(fleet_yaml(pools={"builders": rare, "big": BIG}, desk=types))
    trial.wait_for("1")
    trial.do("apply")

    trial.apply()

    assert trial.machines() == ["trial-big-0001"]


@pytest.mark.slow
def test_machine_is_on_demand_when_spot_is_out_of_stock(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": EITHER}, desk=SPOT))
    trial.wait_for("1", "2")
    trial.do("apply")
    assert sorted(result for _, result in trial.attempts()) == ["out-of-stock", "starting"]
    trial.age(minutes=10)

    trial.apply()

    assert trial.machines() == ["trial-builders-0001", "trial-builders-0002"]
    markets = [m.inputs.settings.get("market") for m in trial.made()]
    assert sorted(markets, key=str) == [None, "spot"]


def test_exceeded_quota_closes_all_pools_of_the_provider(trial: Trial) -> None:
    trial.write(fleet_yaml(desk="faults: {create: quota}"))
    trial.wait_for(big=["1"])
    trial.do("apply")

    assert tells(because(trial, "builders"), "quota", "provider desk", "used", "in 1 run")


def test_one_error_does_not_close_a_pool(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, desk="faults: {create: error}"))
    trial.wait_for("1")
    trial.do("apply")
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))

    trial.apply()

    assert trial.machines() == ["trial-builders-0001"]


@pytest.mark.slow
def test_permanent_errors_are_retried_with_growing_delay(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, desk="faults: {create: error}"))
    trial.wait_for("1", "2")
    trial.do("apply")
    trial.do("apply")
    assert len(trial.attempts()) == 4

    trial.do("apply")

    assert len(trial.attempts()) == 4
    assert tells(because(trial), "4 of 4", "failed", "2 runs")


@pytest.mark.slow
def test_machine_that_never_boots_is_deleted_and_its_image_stopped(trial: Trial) -> None:
    dead = fleet_yaml(
        pools={"builders": BUILDERS}, desk="boot: 1s, faults: {never_boots: [ccx33]}", more=STOP
    )
    trial.write(dead)
    trial.wait_for("1")
    for _ in range(6):
        trial.do("apply")
        trial.age(minutes=11)

    assert [result for _, result in trial.attempts()] == ["failed", "failed"]
    assert trial.machines() == []
    assert tells(because(trial), "failed", "2", "2 boots")


def test_successful_boot_is_stored(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, desk="boot: 1s"))
    trial.wait_for("1")
    trial.apply()
    trial.age(minutes=1)

    trial.apply()

    assert trial.attempts() == [("trial-builders-0001", "registered")]
