"""`fleet explain powerful`: who would gain most per euro, and which rules no build uses."""

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from fleet.model.facts import Request, Work, World
from fleet.state.history import append
from tests.builders import NOW, a_request, a_sim_world, a_worker
from tests.rigs.process import RunFleet

POOL = {"provider": "desk", "image": "trixie", "workers": {"max": 3}}
FLEET: dict[str, Any] = {
    "fleet": "demo",
    "providers": {"desk": {"kind": "sim", "boot": "1m"}},
    "queues": {"debian": {"kind": "world", "path": "world.json"}},
    "durations": {
        "sbuild": [
            {"match": "chromium", "takes": "24h", "machine": "ccx33", "parallel": "100%"},
            {"match": "gcc.*", "takes": "24h", "machine": "ccx33", "parallel": "50%"},
            {"match": "python", "takes": "24h", "machine": "ccx33", "parallel": "0%"},
            {"match": "llvm", "takes": "10h", "machine": "ccx33"},
        ]
    },
    "images": {"trixie": {"existing": {"desk": "trixie-1"}, "architecture": "amd64"}},
    "pools": {
        "builders": POOL | {"machine": "ccx33"},
        "powerful": POOL | {"machine": "ccx63", "provides": ["big"]},
    },
    "tags": {"big": {"on_demand": True, "exclusive": True, "asked_by": ["rules"]}},
    "powerful": [
        {"match": "debian/.*/llvm", "ask": ["big"], "contact": "@llvm"},
        {"match": "debian/.*/libreoffice", "ask": ["big"], "contact": "@office"},
        {"match": "debian/.*/chromium", "ask": ["big"], "task": "autopkgtest"},
        {"match": "debian/.*/old", "ask": ["big"], "expires": "2020-01-01"},
    ],
}


def build(number: int, package: str, **more: object) -> Request:
    data = {"build_architecture": more.pop("architecture", "amd64")}
    said = {"task": "sbuild", "scope": "debian", "workspace": "base", "task_data": data}
    given = {"id": str(number), "package": package, "required": (), "expected_seconds": None}
    return a_request(**(given | said | more))


def moment(days_ago: float, *builds: Request, **more: Any) -> World:  # noqa: ANN401 - of a world
    world = a_sim_world(requests=builds, fleet="demo", **more)
    return world.altered(time=NOW - timedelta(days=days_ago))


def explain(
    run_fleet: RunFleet, project: Path, *worlds: World, rules: object = None, since: str = ""
) -> dict[str, Any]:
    fleet = FLEET if rules is None else FLEET | {"powerful": rules}
    (project / "fleet.yaml").write_text(yaml.safe_dump(fleet, sort_keys=False), encoding="utf-8")
    for world in worlds:
        append(str(project / "history.zst"), world.model_dump_json(), world.time)
    options = ["--from", since] if since else []
    ran = run_fleet("explain", "powerful", "--history", "history.zst", "--json", *options)
    assert (ran.returncode, ran.stderr) == (0, "")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


FIRST = [build(1, "chromium"), build(2, "gcc-15"), build(3, "python"), build(4, "llvm")]
SECOND = [*FIRST, build(5, "chromium"), build(6, "gcc-15")]
PAST = [moment(100, *FIRST), moment(60, *SECOND), moment(0, *SECOND, build(7, "chromium"))]


def packages(found: dict[str, Any]) -> list[str]:
    return [each["name"].rpartition("/")[2] for each in found["packages"]]


def unused(found: dict[str, Any]) -> list[int]:
    return [each["path"][1] for each in found["unused"]]


def test_proposed_rule_gives_package_the_machine(run_fleet: RunFleet, project: Path) -> None:
    written = explain(run_fleet, project, *PAST)["packages"][0]["rule"]

    rule = yaml.safe_load(written)
    assert rule == {"match": "debian/base/amd64/chromium", "ask": ["big"], "task": "sbuild"}
    found = explain(run_fleet, project, rules=[rule])
    assert packages(found) == ["llvm", "gcc-15"]


def test_figures_equal_those_of_explain_request(run_fleet: RunFleet, project: Path) -> None:
    first = explain(run_fleet, project, *PAST)["packages"][0]

    (project / "last.json").write_text(PAST[-1].model_dump_json(), encoding="utf-8")
    ran = run_fleet("explain", "request", "7", "--world", "last.json", "--json")
    places = json.loads(ran.stdout)["places"]
    (here,) = [each for each in places if not each["asks"]]
    (there,) = [each for each in places if each["asks"]]
    assert (first["seconds_here"], first["seconds_there"]) == (here["seconds"], there["seconds"])
    for ours, theirs in ((first["cost_here"], here["cost"]), (first["cost_there"], there["cost"])):
        assert abs(Decimal(ours) - Decimal(theirs)) <= Decimal("0.0001")


def test_build_that_was_only_seen_running_uses_its_rule(
    run_fleet: RunFleet, project: Path
) -> None:
    work = Work(task="sbuild", package="libreoffice", names=("debian/base/amd64/libreoffice",))
    worker = a_worker(busy=True, work=work, running="9")
    runs = a_sim_world(worker, fleet="demo").altered(time=NOW - timedelta(days=2))

    found = explain(run_fleet, project, *PAST[:-1], runs, PAST[-1])

    assert unused(found) == [2]
