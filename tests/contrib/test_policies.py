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
BUILDERS = (
    "pools: {builders: {provider: desk, machine: ccx33, image: trixie, workers: {max: 4}}}\n"
)
WITH_TAG = BUILDERS + "tags: {x: {}}\n"
READ = "2026-11-21T08:00:00Z"
WORLD = {
    "format": "fleet-world-1",
    "fleet": "policed",
    "time": READ,
    "queues": {"work": {"demand": {"read_at": READ}}},
    "providers": {"desk": {"read_at": READ}},
}


def pools(workers: str, machine: str = "big", more: str = "") -> str:
    return (
        f"pools: {{builders: {{provider: desk, machine: {machine}, image: trixie, "
        f"workers: {{{workers}}}{more}}}}}\n"
    )


SPOT = "{type: big, market: [spot]}"
TAGGED = ", provides: [cheap]"
GOOD = {
    "cost": pools("max: 4"),
    "cost, less": pools("max: 4, min: 1"),
    "powerful": WITH_TAG
    + "powerful: [{match: a/b/c/d, ask: [x], contact: ada, expires: 2027-03-01}]\n",
    "owners": pools("max: 30") + "lookups: {owners: {builders: {first: ada, second: grace}}}\n",
    "owners, few": pools("max: 20"),
    "spot": pools("max: 4", SPOT, TAGGED)
    + "tags: {cheap: {otherwise: {after: 2h, drop: true}}}\n",
    "spot, too": pools("max: 4", "{type: big, market: [spot, on-demand]}"),
    "spot, star": pools("max: 4", SPOT, TAGGED)
    + "tags: {'ch*': {otherwise: {after: 2h, drop: true}}}\n",
}
BAD: dict[str, tuple[str, list[str | int]]] = {
    "cost": (pools("max: 4, min: 2"), ["pools"]),
    "powerful": (
        WITH_TAG + "powerful: [{match: a/b/c/d, ask: [x]}]\n",
        ["powerful", 0],
    ),
    "powerful, contact": (
        WITH_TAG + "powerful: [{match: a/b/c/d, ask: [x], expires: 2027-03-01}]\n",
        ["powerful", 0],
    ),
    "powerful, for ever": (
        WITH_TAG + "powerful: [{match: a/b/c/d, ask: [x], contact: ada, expires: 2099-03-01}]\n",
        ["powerful", 0],
    ),
    "owners": (pools("max: 30"), ["pools", "builders", "workers", "max"]),
    "owners, one": (
        pools("max: 21") + "lookups: {owners: {builders: {first: ada, second: ada}}}\n",
        ["pools", "builders", "workers", "max"],
    ),
    "spot": (pools("max: 4", SPOT), ["pools", "builders", "machine", "market"]),
    "spot, waits": (
        pools("max: 4", SPOT, TAGGED) + "tags: {cheap: {on_demand: true}}\n",
        ["pools", "builders", "machine", "market"],
    ),
}


@pytest.fixture
def policed(project: Path) -> Path:
    """Return a project with all shipped policies, and the fleet.yaml of its target branch."""
    shutil.copytree(
        ROOT / "contrib/policies", project / "policies", ignore=shutil.ignore_patterns("__pyc*")
    )
    (project / "base").mkdir()
    (project / "base/fleet.yaml").write_text(HEAD + BUILDERS, encoding="utf-8")
    (project / "world.json").write_text(json.dumps(WORLD), encoding="utf-8")
    return project


@pytest.mark.slow
@pytest.mark.parametrize("name", GOOD)
def test_fleet_that_follows_policies_passes(policed: Path, run_fleet: RunFleet, name: str) -> None:
    (policed / "fleet.yaml").write_text(HEAD + GOOD[name], encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml")

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
def test_fleet_that_violates_a_policy_fails_at_the_key(
    policed: Path, run_fleet: RunFleet, name: str
) -> None:
    text, path = BAD[name]
    (policed / "fleet.yaml").write_text(HEAD + text, encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml", "--json")

    found = json.loads(ran.stdout)["findings"]
    assert ran.returncode == 1
    assert {each["rule"] for each in found} == {"failed-policy"}
    assert {f"policies/{name.partition(',')[0]}.py" in each["message"] for each in found} == {True}
    assert {tuple(each["path"]) for each in found} == {tuple(path)}


@pytest.mark.slow
def test_cost_policy_fails_when_cost_is_unknown(policed: Path, run_fleet: RunFleet) -> None:
    (policed / "fleet.yaml").write_text(HEAD + BUILDERS, encoding="utf-8")
    (policed / "base/fleet.yaml").write_text("fleet: [\n", encoding="utf-8")

    ran = run_fleet("check", "--world", "world.json", "--base", "base/fleet.yaml", "--json")
    alone = run_fleet("check", "--world", "world.json")

    (finding,) = json.loads(ran.stdout)["findings"]
    assert (ran.returncode, finding["span"]["file"]) == (1, "policies/cost.py")
    assert (alone.returncode, "1 skipped" in alone.stdout) == (0, True)


def test_each_shipped_policy_has_passing_and_failing_cases() -> None:
    shipped = {path.stem for path in (ROOT / "contrib/policies").glob("*.py")}

    for shown in (GOOD, BAD):
        assert {name.partition(",")[0] for name in shown} == shipped
