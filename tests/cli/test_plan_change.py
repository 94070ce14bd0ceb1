"""The report of a merge request leads with the cost and the time of the builds that it moves."""

from typing import Any

import time_machine

from tests.builders.sentences import tells
from tests.rigs.trial import BIG, BUILDERS, Trial, fleet_yaml

DURATIONS = """\
durations:
  sbuild: [{match: chromium, takes: 26h, machine: ccx33}, {takes: 20m, machine: ccx33}]
tags: {big: {on_demand: true, exclusive: true}}
"""
RULE = "powerful: [{match: 'debian/.*/chromium', ask: [big], contact: '@big'}]\n"


def wait_for_builds(trial: Trial, *packages: str) -> None:
    """Have builds of these packages wait."""
    about = {
        "task": "sbuild",
        "scope": "debian",
        "workspace": "builds",
        "required": ["worker:build-arch:amd64"],
    }
    trial.queue(*({"id": str(nth), "package": each, **about} for nth, each in enumerate(packages)))


def change_of(trial: Trial) -> dict[str, Any]:
    """Return what a plan says of the change."""
    found: dict[str, Any] = trial.json("plan", "--base", "base.yaml")["change"]
    return found


def changed(trial: Trial, before: str, after: str) -> None:
    """Have a merge request change one fleet.yaml to another."""
    (trial.folder / "base.yaml").write_text(before, encoding="utf-8")
    trial.write(after)


def pools(most: int = 4) -> dict[str, str]:
    """Return the pools; those of everyday builds have at most `most` machines."""
    small = BUILDERS.replace("max: 4", f"max: {most}")
    small = small.replace("image: trixie", 'image: trixie, provides: ["worker:build-arch:amd64"]')
    return {"big": BIG.replace("[big]", '[big, "worker:build-arch:amd64"]'), "builders": small}


BUDGET = "budgets: {big: {tags: [big], per_month: %s EUR}}\n"


def headline(trial: Trial) -> str:
    """Return the headline of the report, without line breaks."""
    shown = trial.told("plan", "--base", "base.yaml")
    return " ".join(shown.partition("UTC\n")[2].partition("no machine more")[0].split())


def stops(trial: Trial) -> list[tuple[int, bool, list[str]]]:
    """Return the builds that get no machine: their number, whether that lasts, and the key."""
    stopped = change_of(trial).get("stopped", [])
    return [(each["count"], each["is_lasting"], each["path"]) for each in stopped]


@time_machine.travel("2026-11-02T08:00Z")  # on a month's last day only its hours are paid
def test_headline_has_builds_that_wait_for_the_rest_of_a_budget(trial: Trial) -> None:
    wait_for_builds(trial, "chromium", "chromium")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, base + RULE + BUDGET % "12")

    assert stops(trial) == [(1, False, ["budgets", "big", "per_month"])]
    assert tells(headline(trial), "1 build gets no machine yet", "budget big")
