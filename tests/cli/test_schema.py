"""`fleet schema`: published JSON Schemas, committed as they are printed."""

import json
from pathlib import Path

import jsonschema
import pytest

from tests.rigs.golden import Golden
from tests.rigs.process import ROOT, RunFleet
from tools.reference import PAGE, page

DOCUMENTS = ["fleet", "world", "plan", "findings", "simulation"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_committed_schema_equals_printed_schema(
    fork_fleet: RunFleet, document: str, golden: Golden
) -> None:
    ran = fork_fleet("schema", document)

    assert (ran.returncode, ran.stderr) == (0, "")
    golden.compare(ROOT / f"docs/schemas/{document}.json", ran.stdout)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_schema_is_valid_and_names_itself(document: str) -> None:
    schema = json.loads((ROOT / f"docs/schemas/{document}.json").read_text(encoding="utf-8"))

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"] == f"urn:fleet:schema:{document}"
    assert schema["title"]


def test_schema_can_be_written_to_a_file(run_fleet: RunFleet, project: Path) -> None:
    ran = run_fleet("schema", "--out", "schema.json")

    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    written = json.loads((project / "schema.json").read_text(encoding="utf-8"))
    assert written["required"] == ["fleet"]


def test_editors_find_the_schema_of_the_example() -> None:
    first = (ROOT / "fleet.yaml").read_text(encoding="utf-8").splitlines()[0]
    settings = json.loads((ROOT / ".vscode/settings.json").read_text(encoding="utf-8"))

    modeline, _, path = first.partition("$schema=")
    assert modeline == "# yaml-language-server: "
    assert (ROOT / path).is_file()
    assert all((ROOT / name).is_file() for name in settings["yaml.schemas"])


def test_reference_page_of_fleet_yaml_is_current(golden: Golden) -> None:
    golden.compare(PAGE, page())
