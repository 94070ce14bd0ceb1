"""`fleet validate` as a person runs it: what it prints, what it writes, how it exits."""

import json
from pathlib import Path

from tests.rigs.process import ROOT, RunFleet

BROKEN = "fleet: demo\ncadance: 10m\npools:\n  builders: {static: builder-01}\n"


def write(project: Path, text: str, name: str = "fleet.yaml") -> None:
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_validate_json_matches_published_schema(run_fleet: RunFleet, project: Path) -> None:
    import jsonschema

    write(project, BROKEN)

    ran = run_fleet("validate", "--json")

    report = json.loads(ran.stdout)
    schema = json.loads((ROOT / "docs/schemas/findings.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(report)
    assert ran.returncode == 1
    assert [found["rule"] for found in report["findings"]] == ["unknown-key", "wrong-type"]


def test_example_of_this_repository_is_valid(run_fleet: RunFleet) -> None:
    ran = run_fleet("validate", cwd=ROOT)

    assert (ran.returncode, ran.stderr) == (0, "")


def test_resolved_file_gives_the_same_plan(run_fleet: RunFleet, project: Path) -> None:
    (folder,) = ROOT.glob("tests/plans/of-pools-with-one-tag-the-cheapest-*")
    write(project, (folder / "fleet.yaml").read_text("utf-8"))
    world = ("--world", str(folder / "world.json"), "--json")
    before = run_fleet("plan", *world)

    ran = run_fleet("validate", "--resolved")
    write(project, ran.stdout)

    assert (ran.returncode, ran.stderr) == (0, "fleet.yaml: valid\n")
    assert "templates" not in ran.stdout
    assert run_fleet("plan", *world).stdout == before.stdout
    compared = run_fleet("plan", *world, "--base", str(folder / "fleet.yaml"))
    change = json.loads(compared.stdout)["change"]
    assert (change["actions"], change["cost_after"]) == ([], change["cost_before"])
