"""What a story does not tell of machines that are created and replaced: times, and each run."""

from fleet.planner.failures import MIN_BACKOFF
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

SOLD_OUT = "boot: 1s, faults: {create: out-of-stock}"


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


def test_replacement_of_all_machines_keeps_min(trial: Trial) -> None:
    pool = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4, min: 3}}"
    at_once = pool.replace("ccx33", "ccx43").replace("}}", "}, replace: {at_a_time: 100%}}")
    trial.write(fleet_yaml(pools={"builders": pool}))
    trial.apply()
    trial.write(fleet_yaml(pools={"builders": at_once}))
    drained: set[str] = set()
    staying = []

    for _ in range(12):
        trial.age(minutes=5)
        done = trial.outcome()
        drained.update(done["builders"]["drained"])
        staying.append(len({*trial.machines()} - drained - {*done["builders"]["created"]}))

    assert min(staying) == 3
    assert {each.inputs.type for each in trial.made()} == {"ccx43"}
