"""`fleet tags list`, and who enforces a tag in `fleet explain` and `fleet plan`."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet, unwrapped

TAG = "worker:class:powerful"
FLEET = """\
fleet: demo
providers: {desk: {kind: sim}}
queues:
  debian: {kind: debusine, url: https://debusine.example.org, scopes: [debian]}
images: {trixie: {suite: trixie, architecture: amd64}}
pools:
  powerful:
    {provider: desk, machine: ccx63, image: trixie, workers: {max: 2},
     provides: ["worker:class:powerful", "weight=5"]}
tags:
  "worker:class:powerful": {exclusive: true}
  weight: {kind: number}
"""
TIME = "2026-11-21T08:00:00Z"
REQUEST = {"id": "7", "required": [TAG, "worker:build-arch:amd64"], "pending_since": TIME}
WORLD = {
    "fleet": "demo",
    "time": TIME,
    "queues": {"debian": {"demand": {"read_at": TIME, "requests": [REQUEST]}, "workers": []}},
    "providers": {"desk": {"read_at": TIME}},
    "stacks": {},
}


@pytest.fixture(autouse=True)
def _written(project: Path) -> None:
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(WORLD), encoding="utf-8")


def test_tags_list_shows_enforcer_of_each_tag(run_fleet: RunFleet) -> None:
    listed = run_fleet("tags", "list")

    assert (listed.returncode, listed.stderr) == (0, "")
    weight, its_tag, powerful, tag, exclusive, place = listed.stdout.splitlines()
    assert tells(weight, "weight", "number", "powerful")
    assert tells(its_tag, "  tag", "debian", "capacity")
    assert tells(powerful, TAG, "exclusive", "powerful")
    assert tells(tag, "  tag", "debian", "scheduler")
    assert tells(exclusive, "  exclusive", "debian", "capacity")
    assert place == "      see fleet.yaml:11:29"


@pytest.mark.parametrize("what", [["pool", "powerful"], ["request", "7"]])
def test_explain_names_enforcer_of_tag(run_fleet: RunFleet, what: list[str]) -> None:
    explained = run_fleet("explain", *what, "--world", "world.json")

    assert explained.returncode == 0
    assert tells(unwrapped(explained.stdout), f"  - {TAG}", "exclusive", "capacity", "debian")
