"""The report of a merge request leads with the cost and the time of the builds that it moves."""

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


POOLS = {
    "big": BIG.replace("[big]", '[big, "worker:build-arch:amd64"]'),
    "builders": BUILDERS.replace(
        "image: trixie", 'image: trixie, provides: ["worker:build-arch:amd64"]'
    ),
}
BUDGET = "budgets: {big: {tags: [big], per_month: 12 EUR}}\n"


def headline(trial: Trial) -> str:
    """Return the headline of the report, without line breaks."""
    shown = trial.told("plan", "--base", "base.yaml")
    return " ".join(shown.partition("UTC\n")[2].partition("no machine more")[0].split())


@time_machine.travel("2026-11-02T08:00Z")  # on a month's last day only its hours are paid
def test_headline_has_builds_that_wait_for_the_rest_of_a_budget(trial: Trial) -> None:
    wait_for_builds(trial, "chromium", "chromium")
    base = fleet_yaml(pools=POOLS, more=DURATIONS)
    (trial.folder / "base.yaml").write_text(base, encoding="utf-8")
    trial.write(base + RULE + BUDGET)

    (stop,) = trial.json("plan", "--base", "base.yaml")["change"]["stopped"]

    assert (stop["count"], stop["is_lasting"]) == (1, False)
    assert stop["path"] == ["budgets", "big", "per_month"]
    assert tells(headline(trial), "1 build gets no machine yet", "budget big")
