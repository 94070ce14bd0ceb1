"""Recorded worlds with absurd values, or in the middle of a change, through the command line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet

AT = "2026-11-30T12:00:00Z"
HOURS_AGO = "2026-11-30T06:00:00Z"
FLEET = """\
fleet: x
providers: {desk: {kind: sim}}
queues: {debian: {kind: world, path: world.json}}
images: {i: {existing: {desk: i}, provides: [sbuild]}}
tags: {power: {asked_by: [rules]}}
pools:
  big: {provider: desk, machine: ccx63, image: i, provides: [power], workers: {max: 3}}
powerful: [{match: ".*/chromium", ask: [power]}]
budgets: {all: {per_day: 100 EUR}}
"""
BIG: dict[str, Any] = {"name": "x-big-1", "type": "ccx63", "image": "i"}


def a_world(**parts: object) -> dict[str, Any]:
    """Return a recording in which one machine builds chromium."""
    work = {
        "task": "sbuild",
        "required": ["power", "sbuild"],
        "package": "chromium",
        "names": ["debian/base/amd64/chromium"],
        "started_at": HOURS_AGO,
    }
    busy = {"name": "x-big-1", "machine": "x-big-1", "pool": "big", "state": "busy"}
    machine = {**BIG, "id": "1", "pool": "big", "state": "running", "created_at": HOURS_AGO}
    demand = {"read_at": AT, "requests": []}
    stack = {"engine": "embedded", "provider": "desk", "serial": 1}
    return {
        "format": "fleet-world-1",
        "fleet": "x",
        "time": AT,
        "queues": {
            "debian": {
                "demand": demand,
                "workers": [{**busy, "running": "7", "work": work, "since": HOURS_AGO}],
            }
        },
        "providers": {"desk": {"read_at": AT, "machines": [machine]}},
        "stacks": {
            "big": {
                **stack,
                "workers": [{**BIG, "architecture": "amd64"}],
                "ids": {"x-big-1": "1"},
            }
        },
        "ledger": {"charged_until": AT, "charges": []},
        **parts,
    }


@pytest.mark.parametrize(
    ("charge", "path"),
    [
        ({"seconds": [0, 0], "money": ["0", "0", "0"]}, "$.ledger.charges[0].seconds"),
        ({"seconds": [], "money": ["0", "0", "0"]}, "$.ledger.charges[0].seconds"),
        ({"seconds": [0, 0, 0], "money": ["0", "1e999", "0"]}, "$.ledger.charges[0].money[1]"),
        ({"seconds": [0, 10**30, 0], "money": ["0", "1", "0"]}, "$.ledger.charges[0].seconds[1]"),
    ],
)
def test_world_is_refused_with_path_when_a_charge_is_absurd(
    run_fleet: RunFleet, project: Path, charge: dict[str, Any], path: str
) -> None:
    ledger = {"charged_until": AT, "charges": [{"pool": "big", **charge}]}
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(a_world(ledger=ledger)), encoding="utf-8")

    ran = run_fleet("plan", "--world", "world.json")

    assert (ran.returncode, ran.stdout) == (1, "")
    assert tells(ran.stderr, "world.json", path)


def test_pages_are_written_when_an_unfinished_machine_builds(
    run_fleet: RunFleet, project: Path
) -> None:
    world = a_world()
    del world["stacks"]["big"]["ids"]  # an apply was killed after it had created the machine
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")

    ran = run_fleet("status", "--world", "world.json", "--site", "site")

    assert ran.returncode == 0, ran.stderr
    money = (project / "site/-/status/money/index.html").read_text(encoding="utf-8")
    assert "chromium" in money
    assert "x-big-1" in money


def test_pages_of_a_recorded_world_raise_no_alarm_about_its_past(
    run_fleet: RunFleet, project: Path
) -> None:
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(a_world()), encoding="utf-8")

    assert run_fleet("status", "--world", "world.json", "--site", "site").returncode == 0

    pages = [each.read_text(encoding="utf-8") for each in (project / "site").rglob("*.html")]
    said = [
        part
        for page in pages
        for part in re.findall(r"<[^<]*>(?:History|Deleted[^<]*): unk", page)
    ]
    assert said
    assert not [part for part in said if "red" in part]


@pytest.mark.parametrize("lost", [False, True])
def test_reserved_money_is_unknown_when_machines_are(
    run_fleet: RunFleet, project: Path, *, lost: bool
) -> None:
    unread = {"unknown": "timeout"}
    world = a_world(providers={"desk": unread}, **({"stacks": {"big": unread}} if lost else {}))
    (project / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(world), encoding="utf-8")

    ran = run_fleet("plan", "--world", "world.json")
    found = run_fleet("plan", "--world", "world.json", "--json")

    (budget,) = [row for row in ran.stdout.splitlines() if "budgets.all.per_day" in row]
    figures = {tuple(each) for each in _budgets(found.stdout, "unknown")}
    # The stack lists the machine too: it is reserved until the end of the day.
    assert ("unknown" in budget) == lost
    assert figures == ({("spent", "reserved", "left")} if lost else {()})


def _budgets(plan: str, kind: str) -> list[list[str]]:
    """Return the figures of each budget that are of a kind."""
    names = ("spent", "reserved", "planned", "left")
    budgets = json.loads(plan)["budgets"]
    return [[name for name in names if kind in each[name]] for each in budgets]
