"""`fleet help`: the help of a command, and the pages that came with fleet."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from fleet.program import GROUPS, VERBS
from tests.builders.sentences import tells
from tests.cli.test_plan import on_a_terminal
from tests.rigs.process import ROOT, RunFleet, clean_environment, run_process
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm


def test_help_lists_each_command_once_below_its_heading(run_fleet: RunFleet) -> None:
    printed = run_fleet("help")

    lines = printed.stdout.splitlines()
    assert printed.stdout == run_fleet("--help").stdout
    assert [line[:-1] for line in lines if line[:-1] in GROUPS] == [*GROUPS]
    words = [line.split()[0] for line in lines if line[:3].strip() and line.startswith("  ")]
    assert [word for word in words if word in VERBS] == [*VERBS]


def test_help_command_equals_help_option(run_fleet: RunFleet) -> None:
    asked = run_fleet("help", "plan")

    assert (asked.returncode, asked.stdout) == (0, run_fleet("plan", "--help").stdout)


@pytest.mark.parametrize(
    ("topic", "path"),
    [
        ("docs/how-to/begin.md", "docs/how-to/begin.md"),
        ("begin", "docs/how-to/begin.md"),
        ("how-to/begin", "docs/how-to/begin.md"),
        ("reasons", "docs/reference/reasons.md"),
        ("disk-above-type", "docs/reference/rules/disk-above-type.md"),
    ],
)
def test_help_prints_a_page_by_any_end_of_its_path(
    run_fleet: RunFleet, topic: str, path: str
) -> None:
    printed = run_fleet("help", topic)

    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout == (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["allow-a-powerful-build", "fleet-yaml", "install"])
def test_help_fills_paragraphs_of_a_page_when_in_a_terminal(
    trial: Trial, warm: Warm, page: str
) -> None:
    raw = trial.told("help", page)

    said = on_a_terminal(trial, warm, "help", page, COLUMNS="72", NO_COLOR="1").replace("\r", "")

    written = [line for line in raw.splitlines() if not line.startswith("<!--")]
    assert said.split() == " ".join(written).split()
    prose = re.sub(r"^ *```.*?^ *```", "", said, flags=re.DOTALL | re.MULTILINE)
    long = [line for line in prose.splitlines() if len(line) > 72 and line[0] not in "#|>"]
    assert all(len(word) > 30 for line in long for word in [max(line.split(), key=len)])


@pytest.mark.parametrize("topic", ["idle-too-long", "docs/reference/reasons.md#idle-too-long"])
def test_help_of_reason_prints_only_its_section(run_fleet: RunFleet, topic: str) -> None:
    printed = run_fleet("help", topic)

    headings = [line for line in printed.stdout.splitlines() if line.startswith("#")]
    assert (printed.returncode, headings) == (0, ["### idle-too-long"])


@pytest.mark.parametrize(
    ("topic", "close"),
    [
        ("idle-to-long", "idle-too-long"),
        ("docs/how-to/begn.md", "docs/how-to/begin"),
        ("\x1b", ""),
    ],
)
def test_help_refuses_an_unknown_topic_with_close_ones(
    run_fleet: RunFleet, topic: str, close: str
) -> None:
    refused = run_fleet("help", topic)

    assert (refused.returncode, refused.stdout) == (2, "")
    assert tells(refused.stderr, close, "fleet help --list")


def test_help_prints_complete_section_when_its_code_has_comments(run_fleet: RunFleet) -> None:
    page = (ROOT / "docs/how-to/run-as-a-service.md").read_text(encoding="utf-8")
    section = page[page.index("## The loop") : page.index("## What does it print?")]
    assert "\n# " in section

    printed = run_fleet("help", "run-as-a-service#the-loop")

    assert printed.stdout.rstrip() == section.rstrip()


def test_help_finds_the_pages_of_an_installed_package(tmp_path: Path) -> None:
    code, data = tmp_path / "lib/python3/site-packages", tmp_path / "share/doc/fleet-reconciler"
    shutil.copytree(ROOT / "fleet", code / "fleet", ignore=shutil.ignore_patterns("*.pyc"))
    for folder in ("how-to", "reference"):
        shutil.copytree(ROOT / "docs" / folder, data / "docs" / folder)
    environment = clean_environment(tmp_path) | {"PYTHONPATH": str(code)}

    command = (sys.executable, "-P", "-m", "fleet", "help", "begin")
    found = run_process(*command, cwd=tmp_path, env=environment)

    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("# ")


def test_help_lists_every_page(run_fleet: RunFleet) -> None:
    paths = [line.split()[0] for line in run_fleet("help", "--list").stdout.splitlines()]

    pages = (ROOT / "docs").glob("**/*.md")
    assert sorted(paths) == sorted(page.relative_to(ROOT).as_posix() for page in pages)
