"""What a new pattern matches is told by package, and requests of one cause in one line."""

from pathlib import Path
from typing import Any

import yaml

from fleet.model.facts import Request
from tests.builders import a_request, a_sim_world
from tests.rigs.process import RunFleet, unwrapped

POOL = {"provider": "desk", "image": "trixie", "workers": {"max": 3}}
BASE: dict[str, Any] = {
    "fleet": "demo",
    "providers": {"desk": {"kind": "sim"}},
    "queues": {"debian": {"kind": "world", "path": "world.json"}},
    "durations": {"any": "2h"},
    "images": {"trixie": {"existing": {"desk": "trixie-1"}, "architecture": "amd64"}},
    "pools": {"builders": POOL | {"machine": "ccx33"}},
}
POWERFUL = POOL | {"machine": "ccx63", "provides": ["big"]}


def build(number: int, package: str, architecture: str = "amd64", **more: object) -> Request:
    return a_request(
        id=str(number),
        task="sbuild",
        package=package,
        scope="debian",
        workspace="base",
        task_data={"build_architecture": architecture},
        required=more.pop("required", ()),
        **more,
    )


def compare(run_fleet: RunFleet, project: Path, *builds: Request) -> str:
    rules = [{"match": "debian/.*/chromium", "ask": ["big"]}]
    head = BASE | {"pools": BASE["pools"] | {"powerful": POWERFUL}, "powerful": rules}
    head |= {"tags": {"big": {"on_demand": True, "exclusive": True, "asked_by": ["rules"]}}}
    for name, fleet in (("base.yaml", BASE), ("fleet.yaml", head)):
        (project / name).write_text(yaml.safe_dump(fleet, sort_keys=False), encoding="utf-8")
    world = a_sim_world(requests=builds, fleet="demo")
    (project / "world.json").write_text(world.model_dump_json(), encoding="utf-8")
    return run_fleet("plan", "--world", "world.json", "--base", "base.yaml").stdout


def test_newly_matched_requests_share_one_line_per_cause(
    run_fleet: RunFleet, project: Path
) -> None:
    tags = [("worker:build-arch:amd64",), (), ("worker:type:external",)]
    builds = [build(n, "chromium", "amd64") for n in (1, 2, 3)]
    builds += [build(n, f"p{n}", required=each, priority=-1) for n, each in enumerate(tags, 4)]

    said = unwrapped(compare(run_fleet, project, *builds))

    (told,) = [each for each in said.splitlines() if "served" in each and "debian/4" in each]
    assert all(f"debian/{number}" in told for number in (4, 5, 6))
