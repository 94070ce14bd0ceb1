"""`fleet export`: rules in the words of the queue that assigns the work."""

from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.rigs.process import RunFleet

HEAD = "fleet: demo\nqueues:\n  copr: {kind: copr, url: https://copr.example.org}\n"
RULE = '  - {match: "praiskup/ping/fedora-.*-.*/chromium", ask: [extra_powerful]}\n'


def written(project: Path, *rules: str) -> None:
    tags = "tags: {extra_powerful: {on_demand: true}}\n"
    text = HEAD + tags + "powerful:\n" + "".join(rules or (RULE,))
    (project / "fleet.yaml").write_text(text, encoding="utf-8")


def test_export_copr_prints_or_writes_the_option(run_fleet: RunFleet, project: Path) -> None:
    written(project)

    printed = run_fleet("export", "copr")
    saved = run_fleet("export", "copr", "--out", "tags.conf")

    assert (printed.returncode, printed.stderr) == (0, "")
    assert (saved.returncode, saved.stdout, saved.stderr) == (0, "", "")
    assert (project / "tags.conf").read_text(encoding="utf-8") == printed.stdout
    assert r'r"praiskup/ping/fedora-.*-.*/chromium\Z"' in printed.stdout


def test_export_writes_nothing_when_a_rule_is_inexpressible(
    run_fleet: RunFleet, project: Path
) -> None:
    written(project, '  - {match: "a/b/[[:alpha:]]+/c", ask: [extra_powerful]}\n')

    refused = run_fleet("export", "copr", "--out", "tags.conf")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert tells(refused.stderr, "fleet.yaml:6:13", "error[not-exported]")
    assert tells(refused.stderr, "copr", "nothing written")
    assert not (project / "tags.conf").exists()


def test_export_debusine_warns_of_inexpressible_rules(run_fleet: RunFleet, project: Path) -> None:
    written(project)

    exported = run_fleet("export", "debusine", "--task", "sbuild", "--task", "autopkgtest")

    assert exported.returncode == 0
    assert "warning[not-exported] " in exported.stderr


def test_export_debusine_has_entries_for_every_named_task(
    run_fleet: RunFleet, project: Path
) -> None:
    written(project, '  - {match: "debian/.*/.*/gcc", ask: ["worker:class:big"]}\n')

    exported = run_fleet("export", "debusine", "--task", "sbuild", "--task", "autopkgtest")

    names = [line for line in exported.stdout.splitlines() if "task_name" in line]
    assert names == ["  task_name: sbuild", "  task_name: autopkgtest"]


@pytest.mark.parametrize("target", ["copr", "debusine"])
def test_invalid_file_is_not_exported(run_fleet: RunFleet, project: Path, target: str) -> None:
    (project / "fleet.yaml").write_text("fleet: demo\npols: {}\n", encoding="utf-8")

    refused = run_fleet("export", target)

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "error[unknown-key]" in refused.stderr
    assert "fleet.yaml: invalid (1 error)" in refused.stderr
