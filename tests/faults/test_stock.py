"""A provider that has no machines: what it could not give is said, and nobody else is held up."""

from fleet.planner.failures import MIN_BACKOFF
from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import BIG, BUILDERS, Trial, fleet_yaml

SOLD_OUT = "boot: 1s, faults: {create: out-of-stock}"
ONE_LEFT = (
    "boot: 1s, types: {ccx63: {cores: 48, memory: 192GiB, disk: 960GiB, price: 0.5 EUR/h, "
    "stock: 1}}"
)


def test_apply_fails_when_no_machine_could_be_created(trial: Trial, run_fleet: RunFleet) -> None:
    trial.write(fleet_yaml(desk=SOLD_OUT))
    trial.wait_for("1")

    failed = run_fleet("apply")

    assert (failed.returncode, failed.stderr) == (1, "")
    assert "  builders: failed\n" in failed.stdout
    assert tells(
        failed.stdout,
        *("stack trial-builders", "trial-builders-0001", "resource_unavailable", "ccx33"),
        "faults.create is out-of-stock",
    )
    assert "  unchanged: big\n" in failed.stdout
    assert tells(failed.stdout.partition("Next:")[2], "the first `fleet apply` after", " UTC")


def test_failure_names_the_next_try_of_the_plan(trial: Trial) -> None:
    """The next apply changes nothing: a back-off follows, and nothing has to be fixed."""
    trial.write(fleet_yaml(desk=SOLD_OUT, pools={"builders": BUILDERS}))
    trial.wait_for("1")

    _, said = trial.do("apply")

    (attempt,) = trial.store().attempts(9)
    time = f"{attempt.at + MIN_BACKOFF:%Y-%m-%d %H:%M:%S} UTC"
    assert said.count(time) == 2
    assert "fix the cause" not in said
    assert f"retried from {time}" in " ".join(trial.told("log").split())
    assert f"retried from {time}" in " ".join(trial.told("plan").split())


def test_failure_without_back_off_has_to_be_fixed(trial: Trial) -> None:
    trial.write(fleet_yaml(desk="boot: 1s, faults: {create: error}", pools={"builders": BUILDERS}))
    trial.wait_for("1")

    _, said = trial.do("apply")

    assert "retry_at" not in trial.outcome()["builders"]
    assert "fix the cause above, then run `fleet apply` again" in said


def test_pool_without_stock_does_not_delay_others(trial: Trial, run_fleet: RunFleet) -> None:
    trial.write(fleet_yaml(desk=ONE_LEFT))
    trial.wait_for("1", big=["2", "3"])

    partly = run_fleet("apply")

    assert partly.returncode == 5
    assert tells(partly.stdout, "2 created", "0 drained", "0 deleted", "fleet trial")
    assert "resource_unavailable: ccx63: 1 of 1 exist" in partly.stdout
    assert trial.machines() == trial.recorded() == ["trial-big-0001", "trial-builders-0001"]


def test_apply_is_partial_when_some_machines_were_created(trial: Trial) -> None:
    trial.write(fleet_yaml(pools={"big": BIG}, desk=ONE_LEFT))
    trial.wait_for(big=["1", "2"])

    code, said = trial.do("apply")

    assert code == 5
    assert tells(said, "1 created", "fleet trial")


def test_next_apply_finishes_when_stock_returns(trial: Trial) -> None:
    trial.write(fleet_yaml(desk=SOLD_OUT, pools={"builders": BUILDERS}))
    trial.wait_for("1", "2")
    trial.do("apply")
    trial.write(fleet_yaml(pools={"builders": BUILDERS}))
    trial.age(minutes=3)

    trial.apply()

    assert trial.settles()
    assert trial.machines() == trial.recorded() == ["trial-builders-0001", "trial-builders-0002"]
