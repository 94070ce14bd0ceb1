"""`fleet export`: rules in the words of the queue that assigns the work."""

from pathlib import Path

from tests.rigs.process import RunFleet

HEAD = "fleet: demo\nqueues:\n  copr: {kind: copr, url: https://copr.example.org}\n"
RULE = '  - {match: "praiskup/ping/fedora-.*-.*/chromium", ask: [extra_powerful]}\n'


def written(project: Path, *rules: str) -> None:
    tags = "tags: {extra_powerful: {on_demand: true}}\n"
    text = HEAD + tags + "powerful:\n" + "".join(rules or (RULE,))
    (project / "fleet.yaml").write_text(text, encoding="utf-8")


def test_export_debusine_has_entries_for_every_named_task(
    run_fleet: RunFleet, project: Path
) -> None:
    written(project, '  - {match: "debian/.*/.*/gcc", ask: ["worker:class:big"]}\n')

    exported = run_fleet("export", "debusine", "--task", "sbuild", "--task", "autopkgtest")

    names = [line for line in exported.stdout.splitlines() if "task_name" in line]
    assert names == ["  task_name: sbuild", "  task_name: autopkgtest"]
