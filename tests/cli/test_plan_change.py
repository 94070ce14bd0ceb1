"""The report of a merge request leads with the cost and the time of the builds that it moves."""

import json
import re

import pytest
import time_machine

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
        r"1 sensitive edit - ",
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


BUDGET = "budgets: {big: {tags: [big], per_month: %s EUR}}\n"


def headline(run_fleet: RunFleet) -> str:
    """Return the headline of the report, without line breaks."""
    shown = run_fleet("plan", "--base", "base.yaml").stdout
    return " ".join(shown.partition("UTC\n")[2].partition("no machine more")[0].split())


def stops(run_fleet: RunFleet) -> list[tuple[int, bool, list[str]]]:
    """Return the builds that get no machine: their number, whether that lasts, and the key."""
    change = json.loads(run_fleet("plan", "--base", "base.yaml", "--json").stdout)["change"]
    return [
        (each["count"], each["is_lasting"], each["path"]) for each in change.get("stopped", [])
    ]


@pytest.mark.parametrize("most", [0, 4])
def test_headline_has_builds_above_the_whole_budget(
    trial: Trial, run_fleet: RunFleet, most: int
) -> None:
    wait_for_builds(trial, "chromium", "chromium", "hello")
    base = fleet_yaml(pools=pools(most), more=DURATIONS)
    changed(trial, base, base + RULE + BUDGET % "0.50")

    found, said = stops(run_fleet), headline(run_fleet)

    assert found == [(2, True, ["budgets", "big", "per_month"])]
    assert tells(said, "2 builds can never start", "budget big", "0.50 EUR", "whole budget")
    assert "no effect" not in said


@time_machine.travel("2026-11-02T08:00Z")  # on a month's last day only its hours are paid
def test_headline_has_builds_that_wait_for_the_rest_of_a_budget(
    trial: Trial, run_fleet: RunFleet
) -> None:
    wait_for_builds(trial, "chromium", "chromium")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, base + RULE + BUDGET % "12")

    assert stops(run_fleet) == [(1, False, ["budgets", "big", "per_month"])]
    assert tells(headline(run_fleet), "1 build gets no machine yet", "budget big")


MAX = ["pools", "big", "workers", "max"]


@pytest.mark.parametrize(
    ("workers", "cause"),
    [("{max: 0}", (1, True, MAX)), ("{max: 4}, mode: drain", (1, False, MAX[:2]))],
)
def test_headline_has_builds_of_a_pool_that_creates_nothing(
    trial: Trial, run_fleet: RunFleet, workers: str, cause: tuple[int, bool, list[str]]
) -> None:
    wait_for_builds(trial, "chromium")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, base.replace("{max: 4}}", workers + "}") + RULE)

    assert stops(run_fleet) == [cause]
    assert "no effect" not in headline(run_fleet)


def test_headline_has_builds_with_a_tag_of_no_pool(trial: Trial, run_fleet: RunFleet) -> None:
    wait_for_builds(trial, "chromium")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    declared = base.replace("tags: {", "tags: {bigg: {}, ")
    changed(trial, base, declared + RULE.replace("[big]", "[bigg]"))

    assert stops(run_fleet) == [(1, True, ["powerful", 0, "ask", 0])]
    assert tells(headline(run_fleet), "1 build can never start", "bigg", "powerful[0]")
    explained = json.loads(run_fleet("explain", "request", "0", "--json").stdout)
    assert explained["reasons"][0]["path"] == ["powerful", 0, "ask", 0]
    suggestion = explained["suggestions"][0]
    assert [each["path"] for each in suggestion["changes"]] == [["powerful", 0, "ask"]]
    assert "bigg to big" in suggestion["sentence"]


def test_headline_has_no_build_when_the_cause_is_the_same(
    trial: Trial, run_fleet: RunFleet
) -> None:
    wait_for_builds(trial, "hello", "bash", "zsh")
    base = fleet_yaml(pools=pools(most=1), more=DURATIONS)
    changed(trial, base, base + RULE + BUDGET % "0.50")

    assert stops(run_fleet) == []
    assert headline(run_fleet).startswith("No effect on machines now")


def test_both_sides_use_durations_of_the_change(trial: Trial, run_fleet: RunFleet) -> None:
    wait_for_builds(trial, "chromium")
    base = fleet_yaml(pools=pools(), more=DURATIONS.replace("26h", "20m"))
    head = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, head + RULE)

    change = json.loads(run_fleet("plan", "--base", "base.yaml", "--json").stdout)["change"]

    builds, (rule,) = change["verdict"]["builds"], change["allow_list"]
    assert builds["before"]["seconds"] == 26 * 3600
    assert rule["cost_before"] == builds["before"]["cost"]


def test_unknown_wait_is_not_shown_as_a_longer_one(trial: Trial, run_fleet: RunFleet) -> None:
    wait_for_builds(trial, "hello", "bash")
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    changed(trial, base, fleet_yaml(pools=pools(most=0), more=DURATIONS))

    shown = run_fleet("plan", "--base", "base.yaml").stdout

    (waits,) = re.findall(r"expected wait ([^(\n]*(?:\n [^(\n]*)?)", shown)
    assert "->" not in waits
    assert "p95 1m 30s without this change and unknown with it" in " ".join(waits.split())


@pytest.mark.parametrize("least", [0, 2])
def test_headline_has_reason_when_a_guard_refuses_more(trial: Trial, least: int) -> None:
    limit = "guards: {refuse: {cost_increase: 0.10 EUR/h}}"
    sizes = {n: BUILDERS.replace("max: 4", f"max: 4, min: {n}") for n in (least, 4)}
    texts = [fleet_yaml(pools={"builders": sizes[n]}, more=limit) for n in (least, 4)]
    changed(trial, *texts)

    shown = " ".join(trial.told("plan", "--base", "base.yaml", code=4).split())
    said = trial.do("plan", "--base", "base.yaml", "--json")[1]

    (guard,) = json.loads(said[said.index("{") :])["change"]["guards"]
    assert guard["after"] == "refused"
    head = shown.partition("No sensitive edits")[0]
    assert tells(head, "cost_increase", "builders", guard["because"])


def test_deletion_names_the_pool_to_which_the_change_moves_a_build(
    trial: Trial, run_fleet: RunFleet
) -> None:
    base = fleet_yaml(pools=pools(), more=DURATIONS, desk="boot: 10m")
    trial.write(base)
    wait_for_builds(trial, "chromium")
    trial.apply()
    changed(trial, base, base + RULE)

    change = json.loads(run_fleet("plan", "--base", "base.yaml", "--json").stdout)["change"]
    shown = run_fleet("plan", "--base", "base.yaml").stdout

    (deleted,) = [each for each in change["actions"] if each["action"] == "delete"]
    assert deleted["reason"] == "not-wanted"
    assert tells(deleted["because"], "this change", "0", "pool big")
    assert tells(shown, "this change", "0", "pool big")


def test_changed_list_is_shown_by_its_entries(trial: Trial, run_fleet: RunFleet) -> None:
    wait_for_builds(trial)
    base = fleet_yaml(pools=pools(), more=DURATIONS)
    head = base.replace('[big, "worker', '[bigg, "worker').replace("26h", "20h")
    changed(trial, base, head.replace("tags: {big:", "tags: {bigg:"))

    shown = run_fleet("plan", "--base", "base.yaml").stdout
    change = json.loads(run_fleet("plan", "--base", "base.yaml", "--json").stdout)["change"]

    assert tells(shown, "provides +bigg, -big")
    assert tells(shown, "durations.sbuild[0].takes: 26h -> 20h")
    (pool,) = change["pools"]
    assert pool["differences"][0]["added"] == ["bigg"]
    assert pool["differences"][0]["removed"] == ["big"]


BUDGETS = """\
budgets:
  all: {per_hour: 5 EUR}
  part: {scope: debian, per_day: 9 EUR}
  large: {tags: [big], per_day: 40 EUR}
"""


@pytest.mark.parametrize(
    ("more", "bounds"),
    [
        (
            BUDGETS,
            {
                "budgets.all.per_hour": "5 EUR",
                "budgets.large.per_day": "40 EUR",
                "tags.big.limits.per.submitter": "1",
            },
        ),
        ("", {"tags.big.limits.per.submitter": "1"}),
    ],
)
def test_higher_max_states_the_worst_case_and_its_bounds(
    trial: Trial, run_fleet: RunFleet, more: str, bounds: dict[str, str]
) -> None:
    wait_for_builds(trial)
    tags = DURATIONS.replace("exclusive: true", "exclusive: true, limits: {per: {submitter: 1}}")
    more_big = pools() | {"big": pools()["big"].replace("max: 4", "max: 13")}
    base, head = (fleet_yaml(pools=each, more=tags + more) for each in (pools(), more_big))
    changed(trial, base, head)

    shown = run_fleet("plan", "--base", "base.yaml").stdout
    change = json.loads(run_fleet("plan", "--base", "base.yaml", "--json").stdout)["change"]

    (edit,) = change["sensitive"]
    assert edit["bounds"] == bounds
    assert tells(headline(run_fleet), "1 sensitive edit", "+4.158 EUR/h")
    assert tells(" ".join(shown.split()), *bounds)
