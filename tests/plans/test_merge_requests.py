"""Merge requests as whoever approves them reads them: one fleet, one world, three changes.

`pytest --update-golden` rewrites report.txt and report.md; the review reads the difference.
"""

import json
import re
import shutil
from pathlib import Path

import jsonschema
import pytest

from tests.rigs.golden import Golden
from tests.rigs.process import ROOT, RunFleet
from tests.rigs.repeats import slow_but

HERE = Path(__file__).parent / "merge-requests"
STORIES = {
    "a-spare-worker-and-a-comment": (0, []),
    "everybody-gets-powerful-machines": (0, ["pattern-matches-more", "asked-by-widened"]),
    "a-pool-in-use-is-removed": (4, ["pool-removed"]),
}


def settled(text: str) -> str:
    """Return a report without how long ago its world was recorded."""
    return re.sub(r"Observed .*", "Observed AGE", text)


@pytest.mark.parametrize("story", slow_but(["everybody-gets-powerful-machines"], STORIES))
def test_report_of_merge_request_matches_golden_file(
    story: str, project: Path, run_fleet: RunFleet, golden: Golden
) -> None:
    code, kinds = STORIES[story]
    shutil.copy(HERE / story / "fleet.yaml", project)
    shutil.copytree(HERE / "target", project / "target")
    words = ("plan", "--world", "target/world.json", "--base", "target/fleet.yaml")

    text, marked, said = (run_fleet(*words, *form) for form in ((), ("--markdown",), ("--json",)))

    assert [each.returncode for each in (text, marked, said)] == [code] * 3
    golden.compare(HERE / story / "report.txt", text.stdout, settled)
    golden.compare(HERE / story / "report.md", marked.stdout, settled)
    plan = json.loads(said.stdout)
    jsonschema.validate(plan, json.loads((ROOT / "docs/schemas/plan.json").read_text()))
    assert [each["kind"] for each in plan["change"]["sensitive"]] == kinds
