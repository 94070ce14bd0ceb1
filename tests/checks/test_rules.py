"""Every rule: what passes, what fails with which finding; its page shows it before and after."""

import re
from datetime import date
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from fleet.apply.config import check_file
from fleet.checks import (
    CHECKS,
    DATED_CHECKS,
    PLANNED_CHECKS,
    RECORDED_CHECKS,
    check_planned,
    rule_of,
)
from fleet.explain.costs import find_budget_needs
from fleet.queues.recorded import read_world
from fleet.report.findings import to_text
from fleet.state.files import LocalFiles
from fleet.tagrules.names import RecordedNames
from tests.fakes.files import FakeFiles
from tests.rigs.golden import Golden
from tests.rigs.process import ROOT

HERE = Path(__file__).parent
PAGES = ROOT / "docs/reference/rules"
TEXT_RULES = (
    "duplicate-key",
    "empty-file",
    "inline-secret",
    "invalid-include",
    "invalid-yaml",
    "missing-key",
    "not-text",
    "template-cycle",
    "too-complex",
    "unknown-key",
    "unknown-template",
    "unreadable-file",
    "unused-template",
    "wrong-type",
    "wrong-value",
)
"""The rules about text and single keys; those across keys are in fleet.checks."""
COMPARED = set(map(rule_of, RECORDED_CHECKS))
PLANNED = set(map(rule_of, PLANNED_CHECKS))
ALL = sorted(
    [*TEXT_RULES, *map(rule_of, CHECKS), *map(rule_of, DATED_CHECKS), *COMPARED, *PLANNED]
)
# No text can show these: they are about files that are no text. tests/cli/test_bad_input.py does.
WITHOUT_TEXT = {"empty-file", "not-text", "too-complex", "unreadable-file"}
WITH_CASES = [rule for rule in ALL if rule not in WITHOUT_TEXT]
KERNELS = ("kernel", "kernel-headers")
TODAY = date(2026, 11, 21)
NAMES = (
    *(f"@asahi/kernel/fedora-{n}-aarch64/{p}" for n in (42, 43) for p in KERNELS),
    *(f"praiskup/ping/fedora-{n}-x86_64/pkg-{p}" for n in (42, 43) for p in range(6)),
    "@copr/copr-pull-requests:pr:7/fedora-43-x86_64/copr-cli",
)
RECORDED = RecordedNames(
    dict.fromkeys(NAMES, ("build",)) | {"debian/builds/amd64/chromium": {"autopkgtest"}}
)
"""What waits, for the rules that compare the allow-list with a recorded queue."""

WORLD = read_world(str(ROOT / "examples/powerful/world.json"), LocalFiles())
"""A recorded world, for the rule about its plan."""


@cache
def written(rule: str) -> dict[str, dict[str, Any]]:
    text = (HERE / f"{rule}.yml").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = yaml.load(text, yaml.CSafeLoader)
    return found


def cases_of(rule: str, kind: str) -> dict[str, Any]:
    return written(rule)[kind]


def findings_of(rule: str, text: object) -> str:
    files = FakeFiles({"fleet.yaml": str(text), "fleet.d/powerful.yaml": "powerful: []\n"})
    recorded = RECORDED if rule in COMPARED else None
    checked = check_file("fleet.yaml", TODAY, files, recorded)
    found = checked.findings
    if rule in PLANNED and checked.fleet is not None:
        needs = find_budget_needs(checked.fleet, WORLD)
        found = tuple(map(checked.document.locate, check_planned(needs)))
    return to_text([f for f in found if f.rule == rule], checked.document)


@pytest.mark.parametrize("rule", WITH_CASES)
def test_rule_finds_nothing_in_good_files(rule: str) -> None:
    said = {name: findings_of(rule, text) for name, text in cases_of(rule, "pass").items()}

    assert said == dict.fromkeys(said, "")


@pytest.mark.parametrize("rule", WITH_CASES)
def test_rule_reports_bad_files(rule: str, golden: Golden) -> None:
    for name, case in cases_of(rule, "fail").items():
        compare(HERE / f"{rule}.yml", name, case, golden)


def compare(path: Path, name: str, case: dict[str, str], golden: Golden) -> None:
    rule, text = path.stem, path.read_text(encoding="utf-8")
    case_start = text.index(f"\n  {name}:\n", text.index("\nfail:\n"))
    start = text.index("finding: |\n", case_start) + len("finding: |\n")
    old, new = (
        indent(each, " " * 6) for each in (case["finding"], findings_of(rule, case["file"]))
    )
    assert text[start:].startswith(old), name

    golden.compare(path, text[:start] + new + text[start + len(old) :])


@pytest.mark.parametrize("rule", ALL)
def test_rule_page_has_the_common_headings(rule: str) -> None:
    page = (PAGES / f"{rule}.md").read_text(encoding="utf-8")

    headings = re.findall("^#+ .*", page, re.MULTILINE)

    assert headings == [f"# {rule}", "## Before", "## After"]


@pytest.mark.parametrize("rule", WITH_CASES)
def test_rule_page_shows_true_examples(rule: str, golden: Golden) -> None:
    path = PAGES / f"{rule}.md"
    page = path.read_text(encoding="utf-8")

    before, after = re.findall("```yaml\n(.*?)```", page, re.DOTALL)
    head, _, rest = page.partition("```text\n")
    _, _, tail = rest.partition("```")

    golden.compare(path, f"{head}```text\n{findings_of(rule, before)}```{tail}")
    assert findings_of(rule, after) == ""


def test_pages_and_case_files_belong_to_rules() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")}
    cases = {path.stem for path in HERE.glob("*.yml")}

    assert pages == {*ALL, "index"}
    assert cases == set(WITH_CASES)


def test_index_lists_every_rule() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")

    assert re.findall(r"^- \[([a-z-]+)\]", index, re.MULTILINE) == ALL
