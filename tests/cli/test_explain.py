"""`fleet explain`: why a request waits, a pool wants N, a worker stays or goes."""

import json
import re
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.trial import Trial, fleet_yaml

TEN = tuple(str(number) for number in range(1, 11))
"""Requests for the two pools of a trial, which hold eight workers."""


def builds(trial: Trial, **packages: str) -> None:
    """Have builds of these packages wait, each under an id."""
    about = {"task": "sbuild", "scope": "debian", "workspace": "builds"}
    trial.queue(
        *({"id": name[1:], "package": package, **about} for name, package in packages.items())
    )


def test_explain_suggests_build_when_image_is_unpublished(
    run_fleet: RunFleet, project: Path
) -> None:
    case = ROOT / "tests/plans/the-starter-without-a-baked-image-makes-no-machine"
    for name in ("fleet.yaml", "world.json"):
        (project / name).write_bytes((case / name).read_bytes())

    explained = run_fleet("explain", "request", "3", "--world", "world.json")

    assert tells(explained.stdout.splitlines()[-1], "build", "publish", "`fleet image due`")


def test_no_change_is_suggested_that_validate_refuses(trial: Trial) -> None:
    warm = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 3, spare: 1}}"
    cold = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 3}}"
    trial.queue({"id": "7", "required": ["gpu"]})
    suggested = []
    for pools in ({"warm": warm}, {"cold": cold, "warm": warm}):
        trial.write(fleet_yaml(pools=pools, more="tags: {gpu: {on_demand: true}}\n"))
        explained = trial.json("explain", "request", "7")
        changes = [each for one in explained["suggestions"] for each in one["changes"]]
        suggested.append([each["path"] for each in changes])

    assert suggested == [[], [["pools", "cold", "provides"]]]


def test_explain_suggests_approval_for_refused_fitting_pool(
    run_fleet: RunFleet, project: Path
) -> None:
    case = ROOT / "tests/plans/what-a-rival-provisioner-would-make-too-is-not-bought"
    text = (case / "fleet.yaml").read_text(encoding="utf-8")
    other = (
        "  other: {provider: h, machine: ccx33, image: i, provides: [gpu], workers: {max: 5}}\n"
    )
    (project / "fleet.yaml").write_text(text + other, encoding="utf-8")
    world = json.loads((case / "world.json").read_text(encoding="utf-8"))
    requests = world["queues"]["q"]["demand"]["requests"]
    requests += [requests[0] | {"id": str(n), "required": ["gpu"]} for n in range(100, 103)]
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")

    explained = run_fleet("explain", "request", "100", "--world", "world.json")

    approvals = re.findall(r"{guard: rival, pool: (\w+)", " ".join(explained.stdout.split()))
    assert {*approvals} == {"other"}


def test_explain_all_as_json_has_one_object_per_request(trial: Trial) -> None:
    trial.wait_for(*TEN)

    explained = trial.told("explain", "request", "--all", "--json")

    answers = json.loads(explained)["requests"]
    assert [answer["name"] for answer in answers] == [f"work/{name}" for name in TEN]
    assert [answer["like"] for answer in answers[8:]] == ["", "work/9"]
    (change,) = answers[8]["suggestions"][0]["changes"]
    assert change["path"] == ["pools", "big", "workers", "max"]
    assert (change["old"], change["new"]) == ("4", "5")


def test_each_request_of_a_package_is_described_briefly(trial: Trial, run_fleet: RunFleet) -> None:
    builds(trial, **{f"n{n}": "linux" for n in range(1, 12)})

    explained = run_fleet("explain", "request", "linux")

    assert (explained.returncode, explained.stderr) == (0, "")
    assert "and 3 more: `fleet explain request --all`" in explained.stdout
    assert explained.stdout.count("`fleet explain request work/") == 8


@pytest.mark.parametrize("name", ["nope", "work/9"])
def test_unknown_request_is_refused_with_waiting_ones(trial: Trial, name: str) -> None:
    trial.wait_for("1", "2")

    said = trial.told("explain", "request", name, code=1)

    assert tells(said, "fleet: error", f"request {name}", "; known: work/1, work/2")
    assert said.count("\n") == 1


def test_explain_suggests_observe_when_recording_lacks_machines(
    trial: Trial, run_fleet: RunFleet
) -> None:
    trial.wait_for("1")

    explained = trial.told("explain", "request", "1", "--world", "world.json", "--json")
    unknown = run_fleet("explain", "request", "99", "--world", "world.json")

    answer = json.loads(explained)
    because = answer["reasons"][0]["because"]
    start = answer["plain"][-1]
    assert tells(start, "start is unknown")
    assert not tells(start, "no worker")
    assert tells(because, "provider desk", "recording world.json", "`fleet observe --out FILE`")
    assert unknown.returncode == 1
    assert tells(unknown.stderr, "99", "work/1")
