"""Budgets of teams and tags, from the command line: they limit what providers bill."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.process import RunFleet

NOW = "2026-11-28T20:00:00Z"
FLEET = """\
fleet: bud
providers:
  cloud:
    kind: sim
    boot: 1m
    types: {{mighty: {{cores: 64, memory: 128GiB, disk: 400GiB, price: 6.00 EUR/h}}}}
    billing: {billing}
queues: {queues}
durations: {{any: 10m}}
images: {{b: {{existing: {{cloud: b}}, provides: [mighty]}}}}
pools:
  mighty: {{provider: cloud, machine: mighty, image: b, workers: {{max: 8{keeps}}}{pool}}}
tags: {tags}
budgets: {budgets}
{more}
"""
DEBUSINE = "{deb: {kind: debusine, url: 'https://deb.example', scopes: [debian], admin: [x]}}"
RECORDED = "{deb: {kind: world, path: world.json}}"
TICKETS = "{deb: {kind: tickets}}"


PARTS = {
    "queues": DEBUSINE,
    "billing": "{increment: 1h}",
    "tags": "{mighty: {on_demand: true}}",
    "keeps": "",
    "pool": "",
    "more": "",
}


def write_fleet(project: Path, budgets: str, **parts: str) -> None:
    """Write a fleet.yaml with these budgets; each of PARTS may be another."""
    text = FLEET.format(budgets=budgets, **PARTS | parts)
    (project / "fleet.yaml").write_text(text, encoding="utf-8")


def write_world(project: Path, *requests: Mapping[str, object], **more: object) -> None:
    """Write a recording in which these requests wait, and no machine exists."""
    waiting = [
        {"id": str(number), "task": "sbuild", "required": ["mighty"], "pending_since": NOW, **each}
        for number, each in enumerate(requests, 1)
    ]
    world = {
        "fleet": "bud",
        "time": NOW,
        "providers": {"cloud": {"machines": [], "workers": [], "read_at": NOW}},
        "ledger": {"charges": [], "charged_until": "2026-11-28T19:59:00Z"},
        "queues": {"deb": {"workers": [], "demand": {"read_at": NOW, "requests": waiting}}},
    }
    (project / "world.json").write_text(json.dumps(world | more), encoding="utf-8")


def planned(run_fleet: RunFleet) -> tuple[int, dict[str, Any]]:
    """Return how many machines a plan creates, and each budget of today."""
    plan = json.loads(run_fleet("plan", "--world", "world.json", "--json").stdout)
    budgets = {each["budget"]: each for each in plan["budgets"] if not each.get("coming")}
    return sum(each["action"] == "create" for each in plan["actions"]), budgets


@pytest.mark.parametrize(
    ("only", "limit", "created"),
    [
        ("tags: [mighty]", "2.10", 0),  # two builds of ten minutes once passed
        ("tags: [mighty]", "6", 1),
        ("tags: [mighty]", "17.99", 2),
        ("scope: debian", "6", 1),
        ("owner: ann", "12", 2),
        ("team: kde", "11", 1),
    ],
)
def test_budget_allows_at_most_its_billed_hours(
    project: Path, run_fleet: RunFleet, only: str, limit: str, created: int
) -> None:
    write_fleet(project, f"{{some: {{{only}, per_day: {limit} EUR}}}}", queues=RECORDED)
    said = {"scope": "debian", "owner": "ann", "team": "kde"}
    write_world(project, *(said | {"requester": f"u{n}"} for n in range(3)))

    made, budgets = planned(run_fleet)

    assert made == created
    assert Decimal(budgets["some"]["planned"]) == 6 * created


KDE: dict[str, object] = {"team": "kde", "owner": "ann", "tags": ["mighty"]}
GNOME: dict[str, object] = {"team": "gnome", "owner": "bob", "tags": ["mighty", "gnome"]}
OF_THE_POOL: dict[str, object] = {}


def write_idle_machines(
    project: Path,
    *paid_by: Mapping[str, object],
    minutes: tuple[int, int] = (20, 10),
    waiting: int = 1,
    charged: str = "",
) -> None:
    """Write a recording of machines that were made and idle so long ago; tickets of ann's wait."""
    made, idle = (str(datetime.fromisoformat(NOW) - timedelta(minutes=each)) for each in minutes)
    payers = {f"bud-mighty-{nth:04}": each for nth, each in enumerate(paid_by, 1)}
    alike = {"pool": "mighty", "type": "mighty", "state": "running", "created_at": made}
    worker = {"pool": "mighty", "state": "idle", "provides": ["mighty"], "since": idle}
    workers = [{"name": name, "machine": name, **worker} for name in payers]
    money = {"seconds": [3000] * 3, "money": [charged] * 3}
    write_world(
        project,
        *({"team": "kde", "owner": "ann", "requester": "ann"} for _ in range(waiting)),
        providers={
            "cloud": {
                "machines": [{"name": name, "id": name, **alike} for name in payers],
                "workers": workers,
                "read_at": NOW,
            }
        },
        stacks={
            "mighty": {
                "engine": "embedded",
                "provider": "cloud",
                "serial": 1,
                "workers": [{"name": name, "type": "mighty", "image": "b"} for name in payers],
                "ids": {name: name for name in payers},
            }
        },
        ledger={
            "charges": [KDE | {"pool": "mighty"} | money] if charged else [],
            "charged_until": NOW,
            "payers": [
                {"machine": name, "pool": "mighty", "since": idle, **each}
                for name, each in payers.items()
            ],
        },
    )


@pytest.mark.parametrize("only", ["team: kde, ", "owner: ann, ", "tags: [mighty], ", ""])
@pytest.mark.parametrize(("queues", "minutes"), [(TICKETS, 50), (RECORDED, 40), (RECORDED, 48)])
def test_exhausted_budget_pays_no_further_hour(
    project: Path, run_fleet: RunFleet, only: str, queues: str, minutes: int
) -> None:
    """The last run that can delete the machine counts the next hour to a request that keeps it."""
    write_fleet(project, f"{{kde: {{{only}per_day: 6 EUR}}}}", queues=queues)
    write_idle_machines(project, KDE, minutes=(minutes, 30), charged="6")

    plan = json.loads(run_fleet("plan", "--world", "world.json", "--json").stdout)

    budget = next(each for each in plan["budgets"] if not each.get("coming"))
    assert Decimal(budget["planned"]) == 0
    assert plan["unserved"]


def assigned(run_fleet: RunFleet) -> dict[str, str]:
    """Return the machine of each request that a plan serves."""
    plan = json.loads(run_fleet("plan", "--world", "world.json", "--json").stdout)
    return {
        key: worker for each in plan["signatures"] for key, worker in each["by_worker"].items()
    }


@pytest.mark.parametrize(
    ("budget", "other", "parts"),
    [
        # 10 minutes more on the own machine; 10 minutes, 15 and two runs on another.
        ("team: kde, per_day: 4.60 EUR", OF_THE_POOL, {"keeps": ", min: 1"}),
        ("owner: ann, per_day: 4.60 EUR", OF_THE_POOL, {"keeps": ", spare: 1"}),
        ("team: kde, owner: ann, per_day: 4.60 EUR", GNOME, {}),
        ("owner: ann, per_day: 4.60 EUR", GNOME, {"keeps": ", min: 1"}),
        ("team: kde, per_day: 7 EUR", OF_THE_POOL, {"billing": "{increment: 1h}"}),
        ("team: kde, per_day: 4.60 EUR", GNOME, {"billing": "{increment: 1m, minimum: 10m}"}),
    ],
)
def test_ticket_gets_the_machine_its_budget_can_pay(
    *,
    project: Path,
    run_fleet: RunFleet,
    budget: str,
    other: dict[str, object],
    parts: dict[str, str],
) -> None:
    """Its team pays a free machine already; one of another payer is billed to it from now on."""
    by_second = {"queues": TICKETS, "billing": "{increment: 1s}", "tags": "{}"}
    write_fleet(project, f"{{kde: {{{budget}}}}}", **by_second | parts)
    write_idle_machines(project, other, KDE, waiting=2)

    assert assigned(run_fleet) == {"deb/1": "bud-mighty-0002"}
