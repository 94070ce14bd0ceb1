"""`fleet import`: a fleet.yaml that validates, and every change of meaning."""

from pathlib import Path

import yaml

from tests.rigs.process import ROOT, RunFleet

LISTING = ROOT / "tests/fixtures/debusine-0.16.2/worker_pool-list-aws.yaml"


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
