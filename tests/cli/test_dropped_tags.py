"""Requests that may drop a tag: when they start and end, and what a merge request says."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path

from tests.cli.test_odd_worlds import AT, a_world
from tests.rigs.process import RunFleet

FLEET = """\
fleet: x
providers: {desk: {kind: sim}}
queues: {debian: {kind: world, path: world.json}}
durations: {sbuild: [{takes: 20h, machine: ccx33}]}
images: {i: {existing: {desk: i}, provides: [sbuild]}}
tags:
  power:
    exclusive: true
    asked_by: [rules]
    limits: {per: {submitter: 1}}
    otherwise: {after: 12h, drop: true}
powerful: [{match: ".*/chromium", ask: [power]}]
pools:
  big: {provider: desk, machine: ccx63, image: i, provides: [power], workers: {max: 1}}
  std: {provider: desk, machine: ccx33, image: i, workers: {max: 2, min: 1}}
"""


def a_build(number: int, since: str) -> dict[str, object]:
    return {
        "id": str(number),
        "task": "sbuild",
        "required": ["sbuild"],
        "package": "chromium",
        "scope": "debian",
        "workspace": "base",
        "requester": "ann",
        "pending_since": since,
        "task_data": {"build_architecture": "amd64"},
    }


def test_start_without_a_tag_is_the_same_everywhere(run_fleet: RunFleet, project: Path) -> None:
    world = a_world()
    builds = [a_build(1, "2026-11-30T09:00:00Z"), a_build(2, "2026-11-30T09:30:00Z")]
    world["queues"]["debian"]["demand"] = {"read_at": AT, "requests": builds}
    world["queues"]["debian"]["workers"][0]["work"]["requester"] = "ann"
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")
    explain = ("explain", "request", "--world", "world.json", "--json")

    alone = json.loads(run_fleet(*explain[:2], "2", *explain[2:]).stdout)
    every = json.loads(run_fleet(*explain, "--all").stdout)["requests"]
    assert run_fleet("status", "--world", "world.json", "--site", "site").returncode == 0
    page = (project / "site/-/status/requests/debian%2F2/index.html").read_text(encoding="utf-8")

    (listed,) = [each for each in every if each["name"] == "debian/2"]
    start, end = datetime.fromisoformat(alone["expected"]), datetime.fromisoformat(alone["finish"])
    assert f"{start:%H:%M}" == "21:30"
    # It runs on an ordinary machine then, where it takes longer.
    assert end - start == timedelta(hours=20)
    assert [listed["expected"], listed["finish"]] == [alone["expected"], alone["finish"]]
    assert f"Expected start {start:%Y-%m-%d %H:%M}" in re.sub(r"(<[^>]*>\s*)+", " ", page)


def test_headline_names_the_limit_that_the_change_sets(run_fleet: RunFleet, project: Path) -> None:
    world = a_world()
    world["queues"]["debian"]["demand"] = {
        "read_at": AT,
        "requests": [a_build(1, "2026-11-30T09:00:00Z")],
    }
    world["queues"]["debian"]["workers"][0]["work"]["requester"] = "ann"
    fleet = FLEET.replace("workers: {max: 1}", "workers: {max: 2}")
    (project / "base.yaml").write_text(fleet, encoding="utf-8")
    budget = "budgets: {all: {per_day: 6 EUR}}\n"
    (project / "fleet.yaml").write_text(fleet + budget, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")

    ran = run_fleet("plan", "--world", "world.json", "--base", "base.yaml", "--json")

    (stopped,) = json.loads(ran.stdout)["change"]["stopped"]
    assert stopped["count"] == 1
    assert stopped["path"] == ["budgets", "all", "per_day"]
