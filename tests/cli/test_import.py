"""`fleet import`: a fleet.yaml that validates, and every change of meaning."""

import json
import time
from pathlib import Path

import pytest
import yaml

from tests.builders.sentences import tells
from tests.rigs.process import ROOT, RunFleet

POOLS = "p:\n  cmd_new: new\n  cmd_delete: delete\n  max_prealloc: 1\n  start_delay: 30\n"
CONF = 'EXTRA_BUILDCHROOT_TAGS = [{"pattern": "@asahi/kernel/.*/kernel", "tags": ["big"]}]\n'
LISTING = ROOT / "tests/fixtures/debusine-0.16.2/worker_pool-list-aws.yaml"


@pytest.fixture
def sources(project: Path) -> dict[str, Path]:
    (project / "pools.yaml").write_text(POOLS, encoding="utf-8")
    (project / "copr.conf").write_text(CONF, encoding="utf-8")
    return {"resalloc": Path("pools.yaml"), "copr": Path("copr.conf"), "debusine": LISTING}


@pytest.mark.parametrize("system", ["resalloc", "copr", "debusine"])
def test_import_writes_valid_fleet_yaml(
    run_fleet: RunFleet, sources: dict[str, Path], system: str
) -> None:
    imported = run_fleet(
        "import", system, sources[system], "--fleet", "mine", "--out", "fleet.yaml"
    )
    validated = run_fleet("validate")

    assert (imported.returncode, imported.stdout) == (0, "")
    assert imported.stderr
    assert validated.returncode == 0, validated.stdout
    assert "fleet.yaml: valid" in validated.stdout


LONG = "p:\n  cmd_delete: delete\n  cmd_new: |\n    set -e\n" + "".join(
    f"    echo 'step {number} of \"many\"' >&2\n" for number in range(60)
)


def test_import_writes_long_commands_as_scripts(run_fleet: RunFleet, project: Path) -> None:
    (project / "pools.yaml").write_text(LONG, encoding="utf-8")

    again = [run_fleet("import", "resalloc", "pools.yaml", "--out", "fleet.yaml") for _ in "12"]

    script = project / "hooks/p-new.sh"
    written = yaml.safe_load((project / "fleet.yaml").read_text(encoding="utf-8"))
    assert [each.returncode for each in again] == [0, 0]
    assert written["pools"]["p"]["hooks"]["new"] == ["./hooks/p-new.sh"]
    assert script.stat().st_mode & 0o777 == 0o755
    assert script.read_text(encoding="utf-8").splitlines()[:2] == ["#!/bin/sh", "set -e"]
    assert run_fleet("validate").returncode == 0


def test_import_never_overwrites_different_program(run_fleet: RunFleet, project: Path) -> None:
    (project / "pools.yaml").write_text(LONG, encoding="utf-8")
    (project / "hooks").mkdir()
    script = project / "hooks/p-new.sh"
    script.write_text("mine", encoding="utf-8")

    imported = run_fleet("import", "resalloc", "pools.yaml", "--out", "new.yaml")

    assert imported.returncode != 0
    assert "hooks/p-new.sh: exists" in imported.stderr
    assert script.read_text(encoding="utf-8") == "mine"
    assert not (project / "new.yaml").exists()


def test_long_commands_stay_inline_when_fleet_yaml_is_printed(
    run_fleet: RunFleet, project: Path
) -> None:
    (project / "pools.yaml").write_text(LONG, encoding="utf-8")

    printed = run_fleet("import", "resalloc", "pools.yaml").stdout

    (project / "fleet.yaml").write_text(printed, encoding="utf-8")
    assert len(yaml.safe_load(printed)["pools"]["p"]["hooks"]["new"][2]) > 1000
    assert run_fleet("validate").returncode == 0


def test_import_reports_changes_as_text_and_json(
    run_fleet: RunFleet, project: Path, sources: dict[str, Path]
) -> None:
    imported = run_fleet("import", "resalloc", sources["resalloc"], "--json", "changes.json")

    report = json.loads((project / "changes.json").read_text(encoding="utf-8"))
    assert report["format"] == "fleet-import-1"
    assert len(report["changes"]) == len(imported.stderr.splitlines())
    assert "pools.yaml:5:3: no-equivalent: start_delay: 30: see guards" in imported.stderr
    assert tells(imported.stdout, "fleet import resalloc", "pools.yaml")


@pytest.mark.parametrize(
    ("system", "content", "finding"),
    [
        ("resalloc", "{% for x in y %}\n", "pools:1:1: error[jinja-template] this is a Jinja"),
        ("resalloc", "a: " + "[" * 60_000, "pools:1:"),
        ("copr", "x = [" * 30_000, "pools:1:"),
        ("debusine", "pools: 1\n", "pools:1:1: error[wrong-type] expected the list that"),
    ],
)
def test_import_reports_unreadable_file_with_place(
    run_fleet: RunFleet, project: Path, system: str, content: str, finding: str
) -> None:
    (project / "pools").write_text(content, encoding="utf-8")
    began = time.process_time()

    refused = run_fleet("import", system, "pools", "--out", "fleet.yaml")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(finding)
    assert refused.stderr.splitlines()[-1].startswith("fleet: error: pools: ")
    assert not (project / "fleet.yaml").exists()
    assert time.process_time() - began < 5


def test_import_debusine_runs_admin_command_of_server(run_fleet: RunFleet, project: Path) -> None:
    imported = run_fleet(
        "import",
        "debusine",
        "--out",
        "fleet.yaml",
        "--admin",
        "sh",
        "-c",
        f'test "$*" = "list --yaml" && cat {LISTING}',
    )
    from_file = run_fleet("import", "debusine", LISTING)

    assert (imported.returncode, imported.stdout) == (0, "")
    written = (project / "fleet.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(written) == yaml.safe_load(from_file.stdout)


def test_import_debusine_fails_without_output_when_server_fails(
    run_fleet: RunFleet, project: Path
) -> None:
    refused = run_fleet("import", "debusine", "--out", "fleet.yaml", "--admin", "false")
    unset = run_fleet("import", "debusine", "--out", "fleet.yaml", "--dsn-env", "NO_SUCH_DSN")

    assert (refused.returncode, unset.returncode) == (1, 1)
    assert tells(refused.stderr, "worker_pool", "--yaml", "ended", "1")
    assert tells(unset.stderr, "NO_SUCH_DSN", "not set")
    assert not (project / "fleet.yaml").exists()
