"""The report of a merge request leads with the cost and the time of the builds that it moves."""

import json
import re

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet
from tests.rigs.trial import BIG, BUILDERS, Trial, fleet_yaml

DURATIONS = """\
durations:
  sbuild: [{match: chromium, takes: 26h, machine: ccx33}, {takes: 20m, machine: ccx33}]
tags: {big: {on_demand: true, exclusive: true}}
"""
RULE = "powerful: [{match: 'debian/.*/chromium', ask: [big], contact: '@big'}]\n"


def wait_for_builds(trial: Trial, *packages: str) -> None:
    """Have builds of these packages wait."""
    trial.wait_for()
    world = json.loads((trial.folder / "world.json").read_text())
    about = {"task": "sbuild", "scope": "debian", "workspace": "builds"}
    tags = {"required": ["worker:build-arch:amd64"]}
    world["queues"]["work"]["demand"]["requests"] = [
        {"id": str(nth), "package": package, **about, **tags}
        for nth, package in enumerate(packages)
    ]
    (trial.folder / "world.json").write_text(json.dumps(world), encoding="utf-8")


def changed(trial: Trial, before: str, after: str) -> None:
    """Have a merge request change one fleet.yaml to another."""
    (trial.folder / "base.yaml").write_text(before, encoding="utf-8")
    trial.write(after)


def pools(most: int = 4) -> dict[str, str]:
    """Return the pools; those of everyday builds have at most `most` machines."""
    small = BUILDERS.replace("max: 4", f"max: {most}")
    small = small.replace("image: trixie", 'image: trixie, provides: ["worker:build-arch:amd64"]')
    return {"big": BIG.replace("[big]", '[big, "worker:build-arch:amd64"]'), "builders": small}


def test_headline_has_cost_and_time_before_and_after(trial: Trial, run_fleet: RunFleet) -> None:
    wait_for_builds(trial, "chromium", "hello")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, base + RULE)

    shown = " ".join(run_fleet("plan", "--base", "base.yaml").stdout.split())

    said = re.search(
        r"UTC This build: ([\d.]+) EUR, (\S+ ?\S*) \(([\d.]+) EUR, 1d 2h without this change\); "
        r"when none waits: 0; 1 sensitive edit",
        shown,
    )
    assert said is not None
    assert float(said[1]) > float(said[3])
    assert said[2] != "1d 2h"


def test_headline_of_several_builds_has_the_longest_time(
    trial: Trial, run_fleet: RunFleet
) -> None:
    wait_for_builds(trial, "chromium", "chromium", "hello")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, base + RULE)

    change = json.loads(run_fleet("plan", "--base", "base.yaml", "--json").stdout)["change"]
    headline = run_fleet("plan", "--base", "base.yaml").stdout.splitlines()[2]

    assert tells(headline, "2 builds")
    builds = change["verdict"]["builds"]
    assert builds["before"]["seconds"] == 26 * 3600
    assert 0 < builds["after"]["seconds"] < 26 * 3600


def test_unknown_wait_is_not_shown_as_a_longer_one(trial: Trial, run_fleet: RunFleet) -> None:
    wait_for_builds(trial, "hello", "bash")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, fleet_yaml(pools=pools(most=0), more=DURATIONS))

    shown = run_fleet("plan", "--base", "base.yaml").stdout

    (waits,) = re.findall(r"expected wait ([^(\n]*(?:\n [^(\n]*)?)", shown)
    assert "->" not in waits
    assert "p95 not compared, unknown with this change" in " ".join(waits.split())
