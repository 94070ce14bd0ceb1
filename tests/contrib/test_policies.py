"""The shipped policies: each passes where it should, and fails at the key that it is about."""

import json
import shutil
from pathlib import Path

import pytest

from tests.rigs.process import ROOT, RunFleet

HEAD = """\
fleet: policed
providers:
  desk:
    kind: sim
    types:
      big: {cores: 64, memory: 256GiB, disk: 1TiB, price: 0.60 EUR/h, spot: 0.20 EUR/h}
queues: {work: {kind: world, path: world.json}}
images: {trixie: {suite: trixie, architecture: amd64}}
"""
READ = "2026-11-21T08:00:00Z"
WORLD = {
    "format": "fleet-world-1",
    "fleet": "policed",
    "time": READ,
    "queues": {"work": {"demand": {"read_at": READ}}},
    "providers": {"desk": {"read_at": READ}},
}
POOL = "{provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}"
SPOT = "{provider: desk, image: trixie, workers: {max: 4}, machine: {type: big, market: [spot]}}"
CHEAP = SPOT.replace("}}", "}, provides: [cheap]}")
RULE, IN_TIME, LATE = "match: a/b/c/d, ask: [x]", "expires: 2027-03-01", "expires: 2099-03-01"
BASE = f"pools: {{builders: {POOL}}}\n"
GOOD = (
    f"""
pools:
  builders: {POOL.replace("max: 4", "max: 30")}
  few: {POOL.replace("max: 4", "max: 20")}
  warm: {POOL.replace("max: 4", "max: 4, min: 1").replace("ccx33", "big")}
  spare: {SPOT.replace("[spot]", "[spot, on-demand]")}
  cheap: {CHEAP}
lookups: {{owners: {{builders: {{first: ada, second: grace}}}}}}
tags: {{x: {{}}, cheap: {{otherwise: {{after: 2h, drop: true}}}}}}
powerful: [{{{RULE}, {IN_TIME}, contact: ada}}]
""",
    f"""
pools: {{cheap: {CHEAP}}}
tags: {{'ch*': {{otherwise: {{after: 2h, drop: true}}}}}}
""",
)
BAD = (
    f"""
pools:
  builders: {POOL.replace("max: 4", "max: 30, min: 2").replace("ccx33", "big")}
  spot: {SPOT}
tags: {{x: {{}}}}
powerful: [{{{RULE}, {IN_TIME}, contact: ada}}, {{{RULE}, {IN_TIME}}}, {{{RULE}, contact: ada}}]
""",
    f"""
pools:
  builders: {POOL.replace("max: 4", "max: 21, min: 2").replace("ccx33", "big")}
  spot: {CHEAP}
lookups: {{owners: {{builders: {{first: ada, second: ada}}}}}}
tags: {{x: {{}}, cheap: {{on_demand: true}}}}
powerful: [{{{RULE}, {IN_TIME}, contact: ada}}, {{{RULE}}}, {{{RULE}, {LATE}, contact: ada}}]
""",
)
FAILING = {
    "cost": {"pools"},
    "owners": {"pools.builders.workers.max"},
    "powerful": {"powerful.1", "powerful.2"},
    "spot": {"pools.spot.machine.market"},
}


@pytest.fixture
def policed(project: Path) -> Path:
    """Return a project with all shipped policies, and the fleet.yaml of its target branch."""
    shutil.copytree(
        ROOT / "contrib/policies", project / "policies", ignore=shutil.ignore_patterns("__pyc*")
    )
    (project / "base").mkdir()
    (project / "base/fleet.yaml").write_text(HEAD + BASE, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(WORLD), encoding="utf-8")
    return project


@pytest.mark.slow
@pytest.mark.parametrize("text", GOOD)
def test_fleet_that_follows_policies_passes(policed: Path, run_fleet: RunFleet, text: str) -> None:
    (policed / "fleet.yaml").write_text(HEAD + text, encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml")

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("text", BAD)
def test_fleet_that_violates_policies_fails_at_their_keys(
    policed: Path, run_fleet: RunFleet, text: str
) -> None:
    (policed / "fleet.yaml").write_text(HEAD + text, encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml", "--json")

    found = json.loads(ran.stdout)["findings"]
    paths: dict[str, set[str]] = {name: set() for name in FAILING}
    for each in found:
        (name,) = (name for name in FAILING if f"policies/{name}.py" in each["message"])
        paths[name].add(".".join(map(str, each["path"])))
    assert ran.returncode == 1
    assert {each["rule"] for each in found} == {"failed-policy"}
    assert paths == FAILING


@pytest.mark.slow
def test_cost_policy_fails_when_cost_is_unknown(policed: Path, run_fleet: RunFleet) -> None:
    (policed / "fleet.yaml").write_text(HEAD + BASE, encoding="utf-8")
    (policed / "base/fleet.yaml").write_text("fleet: [\n", encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml", "--json")
    alone = run_fleet("check", "--world", "world.json")

    (finding,) = json.loads(ran.stdout)["findings"]
    assert (ran.returncode, finding["span"]["file"]) == (1, "policies/cost.py")
    assert (alone.returncode, "1 skipped" in alone.stdout) == (0, True)


def test_each_shipped_policy_has_passing_and_failing_cases() -> None:
    assert {path.stem for path in (ROOT / "contrib/policies").glob("*.py")} == FAILING.keys()
