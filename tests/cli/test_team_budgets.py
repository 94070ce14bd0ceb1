"""Budgets of teams and tags, from the command line: they limit what providers bill."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.process import RunFleet
from tests.rigs.warm import Warm
from tests.walks.walking import Walk

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
COPR = "{deb: {kind: copr, url: 'https://copr.example'}}"
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


@pytest.mark.parametrize(
    ("billing", "takes"),
    [
        ("{increment: 1s}", "3.15"),  # 90 s of boot, ten minutes of work, two runs of ten minutes
        ("{increment: 1s, minimum: 1h}", "6"),
        ("{increment: 1m}", "3.2"),
        ("{increment: 1h, minimum: 3h}", "18"),
    ],
)
def test_budget_counts_billed_cost_of_builds_machine(
    project: Path, run_fleet: RunFleet, billing: str, takes: str
) -> None:
    budgets = "{some: {tags: [mighty], per_day: 100 EUR}}"
    write_fleet(project, budgets, queues=RECORDED, billing=billing)
    write_world(project, {"scope": "debian"})

    _, found = planned(run_fleet)

    assert Decimal(found["some"]["planned"]) == Decimal(takes)


MAPPED = """
teams:
  kde:
    users: ["7"]
    groups: [kde-team]
    owners: ["@kde"]
    workspaces: [debian/kde]
    scopes: [kde]
"""


@pytest.mark.parametrize(
    ("queues", "said"),
    [
        (DEBUSINE, {"requester": "7", "scope": "debian"}),
        (DEBUSINE, {"groups": ["kde-team"], "scope": "debian"}),
        (DEBUSINE, {"scope": "debian", "workspace": "kde"}),
        (DEBUSINE, {"scope": "kde", "workspace": "base"}),
        (COPR, {"owner": "@kde", "requester": "ann"}),
        (COPR, {"owner": "@gnome", "requester": "7"}),
        (RECORDED, {"owner": "@kde"}),
        (TICKETS, {"owner": "@kde", "requester": "bob"}),
        (TICKETS, {"requester": "7"}),
        (TICKETS, {"requester": "bob", "team": "kde"}),
    ],
)
def test_budget_counts_the_members_of_its_team(
    project: Path, run_fleet: RunFleet, queues: str, said: dict[str, object]
) -> None:
    write_fleet(project, "{kde: {team: kde, per_day: 7 EUR}}", queues=queues, more=MAPPED)
    write_world(project, said, said, {"requester": "8", "scope": "debian", "owner": "@gnome"})

    made, budgets = planned(run_fleet)

    assert (made, budgets["kde"]["planned"]) == (2, "6.0000")


def test_team_that_no_queue_reports_is_a_finding(project: Path, run_fleet: RunFleet) -> None:
    budgets = "{a: {tags: [mighty], per_day: 2 EUR}, kde: {team: kde, per_day: 1 EUR}}"
    write_fleet(project, budgets)
    without = run_fleet("validate", "--json")
    write_fleet(project, budgets, more="teams: {kde: {scopes: [debian]}}")
    mapped = run_fleet("validate", "--json")

    found = [each["rule"] for each in json.loads(without.stdout)["findings"]]
    assert found.count("unknown-team") == 1
    assert "unknown-team" not in mapped.stdout


def test_plan_respects_budget_when_machine_waits_for_its_build(
    project: Path, run_fleet: RunFleet
) -> None:
    """The hour that was bought is spent, and its build takes it: nothing more, and not less."""
    write_fleet(project, "{kde: {team: kde, per_day: 7 EUR}}", queues=RECORDED)
    machine = {
        "name": "bud-mighty-0001",
        "id": "m1",
        "pool": "mighty",
        "type": "mighty",
        "state": "running",
        "created_at": "2026-11-28T19:58:00Z",
    }
    worker = {
        "name": "bud-mighty-0001",
        "machine": "bud-mighty-0001",
        "pool": "mighty",
        "state": "idle",
        "provides": ["mighty"],
        "since": "2026-11-28T19:59:30Z",
    }
    inputs = {"name": "bud-mighty-0001", "type": "mighty", "image": "b"}
    stack = {"engine": "embedded", "provider": "cloud", "serial": 1, "workers": [inputs]}
    payer = {"machine": "bud-mighty-0001", "pool": "mighty", "team": "kde", "tags": ["mighty"]}
    write_world(
        project,
        {"team": "kde"},
        {"team": "kde"},
        providers={"cloud": {"machines": [machine], "workers": [worker], "read_at": NOW}},
        stacks={"mighty": stack | {"ids": {"bud-mighty-0001": "m1"}}},
        ledger={
            "charges": [],
            "charged_until": "2026-11-28T19:57:00Z",
            "payers": [payer | {"since": "2026-11-28T19:57:00Z"}],
        },
    )

    made, budgets = planned(run_fleet)

    assert (made, budgets["kde"]["spent"]) == (0, "6.0000")
    assert (budgets["kde"]["reserved"], budgets["kde"]["planned"]) == ("0.0000", "0.0000")


MACHINE = {
    "name": "bud-mighty-0001",
    "id": "m1",
    "pool": "mighty",
    "type": "mighty",
    "state": "running",
}
INPUTS = {"name": "bud-mighty-0001", "type": "mighty", "image": "b"}
STACK = {"engine": "embedded", "provider": "cloud", "serial": 1, "workers": [INPUTS]}


def write_used_machine(project: Path, waiting: Mapping[str, object], minutes: int) -> None:
    """Write a recording of a machine of this age, 6 EUR charged to its payer; a request waits."""
    now = datetime.fromisoformat(NOW)
    created = str(now - timedelta(minutes=minutes))
    idle = str(now - timedelta(minutes=30))
    worker = {
        "name": "bud-mighty-0001",
        "machine": "bud-mighty-0001",
        "pool": "mighty",
        "state": "idle",
        "provides": ["mighty"],
        "since": idle,
    }
    payer = {"pool": "mighty", "team": "kde", "owner": "ann", "tags": ["mighty"]}
    write_world(
        project,
        waiting,
        providers={
            "cloud": {
                "machines": [MACHINE | {"created_at": created}],
                "workers": [worker],
                "read_at": NOW,
            }
        },
        stacks={"mighty": STACK | {"ids": {"bud-mighty-0001": "m1"}}},
        ledger={
            "charges": [payer | {"seconds": [3000] * 3, "money": ["6"] * 3}],
            "charged_until": NOW,
            "payers": [payer | {"machine": "bud-mighty-0001", "since": idle}],
        },
    )


@pytest.mark.parametrize("only", ["team: kde", "owner: ann", "tags: [mighty]", ""])
@pytest.mark.parametrize(("queues", "minutes"), [(TICKETS, 50), (RECORDED, 40), (RECORDED, 48)])
def test_exhausted_budget_pays_no_further_hour(
    project: Path, run_fleet: RunFleet, only: str, queues: str, minutes: int
) -> None:
    """The last run that can delete the machine counts the next hour to a request that keeps it."""
    only = f"{only}, " if only else ""
    write_fleet(project, f"{{kde: {{{only}per_day: 6 EUR}}}}", queues=queues)
    write_used_machine(project, {"team": "kde", "owner": "ann"}, minutes)

    plan = json.loads(run_fleet("plan", "--world", "world.json", "--json").stdout)

    budget = next(each for each in plan["budgets"] if not each.get("coming"))
    assert Decimal(budget["planned"]) == 0
    assert plan["unserved"]


@pytest.mark.slow
def test_teams_pay_the_bill_of_their_tickets_together(tmp_path: Path, warm: Warm) -> None:
    """Each has a machine for an hour or two, of which a build takes ten minutes."""
    walk = Walk(tmp_path, warm)
    write_fleet(
        walk.project,
        "{kde: {team: kde, per_day: 40 EUR}, gnome: {team: gnome, per_day: 40 EUR}}",
        queues="{tickets: {kind: tickets, answer: '{name}'}}",
        more="teams: {gnome: {users: [bob]}}",
    )
    walk.run("fleet state init")
    walk.run("fleet ticket open --tag mighty --team kde --user ann")
    walk.run("fleet ticket open --tag mighty --user bob")
    for minutes in (2, 10, 10):
        walk.run("fleet apply")
        walk.run(f"later {minutes}m")
    walk.run("fleet ticket close 1 --user ann")
    for minutes in (10, 10, 30, 10):
        walk.run("fleet apply")
        walk.run(f"later {minutes}m")
    walk.run("fleet ticket close 2 --user bob")
    for _ in range(3):
        walk.run("fleet apply")
        walk.run("later 10m")

    month = walk.now().strftime("%Y-%m")
    report = walk.json(f"fleet report --month {month} --json")
    teams = {each["name"]: Decimal(each["money"]) for each in report["teams"]}

    assert teams == {"kde": 6, "gnome": 12}
    assert sum(teams.values()) == Decimal(report["money"])
    assert 0 < report["idle_seconds"] < report["seconds"]


IDLE_SINCE = "2026-11-28T19:50:00Z"
PAID_BY_KDE: dict[str, object] = {"team": "kde", "owner": "ann", "tags": ["mighty"]}


def write_idle_machines(
    project: Path,
    paid_by: Mapping[int, Mapping[str, object]],
    waiting: int,
    requires: Mapping[int, str] | None = None,
) -> None:
    """Write a recording of idle machines, each with its payer; tickets of ann's wait."""
    names = {number: f"bud-mighty-000{number}" for number in sorted(paid_by)}
    machines = [
        MACHINE | {"name": name, "id": f"m{number}", "created_at": "2026-11-28T19:40:00Z"}
        for number, name in names.items()
    ]
    workers = [
        {
            "name": name,
            "machine": name,
            "pool": "mighty",
            "state": "idle",
            "provides": ["mighty"],
            "requires": [requires[number]] if requires and number in requires else [],
            "since": IDLE_SINCE,
        }
        for number, name in names.items()
    ]
    payers = [
        {"machine": name, "pool": "mighty", "since": IDLE_SINCE, **paid_by[number]}
        for number, name in names.items()
    ]
    write_world(
        project,
        *({"team": "kde", "owner": "ann", "requester": "ann"} for _ in range(waiting)),
        providers={"cloud": {"machines": machines, "workers": workers, "read_at": NOW}},
        stacks={
            "mighty": STACK
            | {
                "workers": [INPUTS | {"name": name} for name in names.values()],
                "ids": {name: f"m{number}" for number, name in names.items()},
            }
        },
        ledger={"charges": [], "charged_until": NOW, "payers": payers},
    )


def assigned(run_fleet: RunFleet) -> dict[str, str]:
    """Return the machine of each request that a plan serves."""
    plan = json.loads(run_fleet("plan", "--world", "world.json", "--json").stdout)
    return {
        key: worker for each in plan["signatures"] for key, worker in each["by_worker"].items()
    }


OF_THE_POOL: dict[str, object] = {}
GNOME: dict[str, object] = {"team": "gnome", "owner": "bob", "tags": ["mighty", "gnome"]}


@pytest.mark.parametrize(
    ("budget", "other", "parts"),
    [
        # 10 minutes more on the own machine; 10 minutes, 15 and two runs on another.
        ("team: kde, per_day: 4.60 EUR", OF_THE_POOL, {"keeps": ", min: 1"}),
        ("owner: ann, per_day: 4.60 EUR", OF_THE_POOL, {"keeps": ", min: 2"}),
        ("team: kde, per_day: 4.60 EUR", OF_THE_POOL, {"keeps": ", spare: 1"}),
        ("team: kde, owner: ann, per_day: 4.60 EUR", GNOME, {}),
        ("owner: ann, per_day: 4.60 EUR", GNOME, {"keeps": ", min: 1"}),
        (
            "team: kde, per_day: 7 EUR",
            OF_THE_POOL,
            {"keeps": ", min: 1", "billing": "{increment: 1h}"},
        ),
        (
            "team: kde, per_day: 4.60 EUR",
            GNOME,
            {"billing": "{increment: 1m, minimum: 10m}"},
        ),
    ],
)
def test_ticket_gets_the_machine_its_budget_can_pay(
    project: Path,
    run_fleet: RunFleet,
    budget: str,
    other: Mapping[str, object],
    parts: dict[str, str],
) -> None:
    """Its team pays a free machine already; one of another payer is billed to it from now on."""
    by_second = {"queues": TICKETS, "billing": "{increment: 1s}", "tags": "{}"}
    write_fleet(project, f"{{kde: {{{budget}}}}}", **by_second | parts)
    write_idle_machines(project, {1: other, 2: PAID_BY_KDE}, waiting=2)

    assert assigned(run_fleet) == {"deb/1": "bud-mighty-0002"}


@pytest.mark.parametrize("keeps", [", min: 2", ", min: 1, spare: 1", ", spare: 2"])
@pytest.mark.parametrize("amount", ["4.60", "6.99"])
def test_ticket_waits_when_its_payer_has_machines_of_other_tickets(
    project: Path, run_fleet: RunFleet, keeps: str, amount: str
) -> None:
    """A machine in another sandbox is of no use to it; the free one counts from now on."""
    write_fleet(
        project,
        f"{{kde: {{team: kde, per_day: {amount} EUR}}}}",
        queues=TICKETS,
        billing="{increment: 1s}",
        keeps=keeps,
        tags="{}",
        pool=", reuse: {opportunity: 1h, max_uses: 9}",
    )
    write_idle_machines(
        project, {1: OF_THE_POOL, 2: PAID_BY_KDE}, waiting=1, requires={2: "sandbox:ann/one"}
    )

    assert assigned(run_fleet) == {}
