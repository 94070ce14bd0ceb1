"""What runs of `fleet apply` observed is kept by default, and can be had back as it was."""

import json
from datetime import timedelta

from fleet.model.facts import World
from fleet.model.history import MomentFigures, RunObservation, RunSample
from fleet.queues.recorded import world_of
from fleet.state import history
from tests.builders import NOW
from tests.rigs.process import RunFleet
from tests.rigs.trial import Trial, fleet_yaml

NOTHING = MomentFigures(0, 0, 0, 0, 0, 0)


def observed(run_fleet: RunFleet, *options: str) -> dict[str, object]:
    found = run_fleet("observe", "--kept", *options)
    assert found.returncode == 0, found.stderr
    world: dict[str, object] = json.loads(found.stdout)
    return world


def test_kept_observation_reproduces_plan_of_its_run(trial: Trial, run_fleet: RunFleet) -> None:
    trial.write(fleet_yaml(desk="boot: 1h"))
    trial.wait_for("1", big=["2"])
    trial.apply()
    (trial.folder / "kept.json").write_text(json.dumps(observed(run_fleet)))

    planned = json.loads(run_fleet("plan", "--json", "--world", "kept.json").stdout)

    [run] = trial.store().last_runs(1)
    assert planned["actions"]
    assert planned["digests"]["plan"] == run["plan"]


def test_observe_writes_latest_observation_of_time_span(trial: Trial, run_fleet: RunFleet) -> None:
    trial.apply()
    first = observed(run_fleet)
    trial.apply()

    assert observed(run_fleet)["time"] != first["time"]
    assert observed(run_fleet, "--until", str(first["time"])) == first


def test_history_append_adds_only_newer_observations(trial: Trial, run_fleet: RunFleet) -> None:
    store, day = trial.store(), timedelta(days=1)
    for nth in range(3):
        world = World(fleet="trial", time=NOW + nth * day)
        seen = RunObservation(world.time, world.model_dump_json(), 100 * day)
        store.record_sample(RunSample(at=world.time, fleet=NOTHING), seen)
        assert run_fleet("observe", "--kept", "--append", "h.zst").returncode == 0

    again = run_fleet("observe", "--kept", "--append", "h.zst")

    name = str(trial.folder / "h.zst")
    assert again.returncode == 0
    assert history.last_moment(name) == NOW + 2 * day
    assert [world_of(name, each).time for each in history.read_earlier(name, NOW + 9 * day)] == [
        NOW,
        NOW + day,
        NOW + 2 * day,
    ]


def test_observe_replaces_names_when_requested(trial: Trial, run_fleet: RunFleet) -> None:
    trial.wait_for("1")
    path = trial.folder / "world.json"
    path.write_text(path.read_text().replace('"id": "1"', '"id": "1", "requester": "ada"'))
    trial.apply()

    assert "ada" in json.dumps(observed(run_fleet))
    assert "ada" not in json.dumps(observed(run_fleet, "--pseudonyms"))


def test_observe_writes_no_file_without_kept_observation(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.write(fleet_yaml().replace("fleet: trial", "fleet: trial\nhistory: {keep: null}"))
    trial.apply()

    found = run_fleet("observe", "--kept", "--out", "kept.json")

    assert found.returncode == 1
    assert "history.keep" in found.stderr
    assert not (trial.folder / "kept.json").exists()


def test_observe_since_is_wrong_usage_without_kept(run_fleet: RunFleet) -> None:
    found = run_fleet("observe", "--since", "2h")

    assert found.returncode == 2
    assert "--kept" in found.stderr
