"""`fleet observe` records the facts behind one plan, to be replayed, without secrets."""

import json
from datetime import timedelta
from typing import Any

import jsonschema

from fleet.model.facts import World
from fleet.model.history import MomentFigures, RunObservation, RunSample
from fleet.queues.recorded import world_of
from fleet.state import history
from tests.builders import NOW
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import Trial, fleet_yaml


def test_observed_world_matches_published_schema(trial: Trial) -> None:
    trial.wait_for("1")
    trial.apply()

    observed = trial.told("observe")

    world = json.loads(observed)
    jsonschema.validate(world, json.loads((ROOT / "docs/schemas/world.json").read_text()))
    assert list(world["stacks"]) == ["builders"]


def test_recorded_world_gives_the_plan_of_its_time(trial: Trial, run_fleet: RunFleet) -> None:
    # Machines that boot for an hour are in one state whenever somebody looks.
    trial.write(fleet_yaml(desk="boot: 1h"))
    trial.wait_for("1", big=["2"])
    trial.apply()
    trial.wait_for("1", "3", big=["2"])
    run_fleet("observe", "--out", "seen.json")

    live = timeless(trial.json("plan"))
    replayed = timeless(trial.json("plan", "--world", "seen.json"))

    assert live["actions"]
    assert live == replayed


def timeless(plan: dict[str, Any]) -> dict[str, Any]:
    """Return a plan without what differs from one moment to the next."""
    return {key: value for key, value in plan.items() if key not in ("time", "digests")}


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

    planned = trial.json("plan", "--world", "kept.json")

    [run] = trial.store().last_runs(1)
    assert planned["actions"]
    assert planned["digests"]["plan"] == run["plan"]


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
