"""`fleet validate` as a person runs it: what it prints, what it writes, how it exits."""

import json
from pathlib import Path

import pytest

from tests.builders.sentences import tells
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


def test_validate_writes_code_quality_report(run_fleet: RunFleet, project: Path) -> None:
    write(project, BROKEN)

    ran = run_fleet("validate", "--gitlab-code-quality", "gl.json")

    issues = json.loads((project / "gl.json").read_text(encoding="utf-8"))
    assert ran.returncode == 1
    assert ran.stdout.endswith("fleet.yaml: invalid (2 errors)\n")
    assert [issue["location"]["lines"]["begin"] for issue in issues] == [2, 4]


def test_code_quality_report_is_an_empty_list_without_findings(
    run_fleet: RunFleet, project: Path
) -> None:
    write(project, "fleet: demo\n")

    ran = run_fleet("validate", "--json", "--gitlab-code-quality", "gl.json")

    assert ran.returncode == 0
    assert json.loads((project / "gl.json").read_text(encoding="utf-8")) == []
    assert json.loads(ran.stdout)["findings"] == []


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("worlds.json", "'world.json'"),
        ("d/worlds.json", "'d/world.json'"),
        ("other", "fleet observe --out"),
        ("none/worlds.json", "fleet observe --out"),
        ("../worlds.json", "fleet observe --out"),
    ],
)
def test_validate_suggests_path_of_misspelt_recording(
    run_fleet: RunFleet, project: Path, path: str, meant: str
) -> None:
    write(
        project,
        f"fleet: demo\nqueues: {{debian: {{kind: world, path: {path}}}}}\n",
        "in/fleet.yaml",
    )
    (project / "in/d").mkdir()
    for place in ("", "in", "in/d"):
        (project / place / "world.json").touch()

    ran = run_fleet("validate", "--file", "in/fleet.yaml")

    assert tells(ran.stdout, "in/fleet.yaml:2:38", "warning[unreadable-file]", path)
    assert tells(ran.stdout, "hint", meant)


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
