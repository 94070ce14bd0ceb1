"""What a quick command may load: nothing that only another command needs."""

import sys
from pathlib import Path

import pytest

from tests.process import ROOT, RunFleet, clean_environment, run_process

HEAVY = {
    "ansible_runner",
    "boto3",
    "botocore",
    "highspy",
    "httpx",
    "jinja2",
    "pulumi",
    "pulumi_aws",
    "pulumi_hcloud",
    "re2",
    "sqlalchemy",
}
PROBE = """
import sys
from fleet.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def loaded_by(folder: Path, *arguments: str) -> set[str]:
    probed = run_process(
        *(sys.executable, "-c", PROBE), *arguments, cwd=folder, env=clean_environment(folder)
    )
    words = probed.stdout.splitlines()[-1].split()
    assert words[0] == "LOADED", probed.stderr
    return set(words[1:])


def test_help_loads_no_library_at_all(tmp_path: Path) -> None:
    loaded = loaded_by(tmp_path, "--help")

    assert loaded & (HEAVY | {"pydantic", "yaml", "shtab"}) == set()


@pytest.mark.parametrize("arguments", [["validate"], ["validate", "--json"], ["schema"]])
def test_validating_loads_only_what_it_needs(arguments: list[str]) -> None:
    loaded = loaded_by(ROOT, *arguments)

    assert "pydantic" in loaded
    assert loaded & HEAVY == set()


def test_patterns_are_loaded_for_an_allow_list_only(tmp_path: Path) -> None:
    text = "fleet: demo\npowerful: [{match: a, ask: [b]}]\n"
    (tmp_path / "fleet.yaml").write_text(text, encoding="utf-8")

    assert "re2" in loaded_by(tmp_path, "validate")


def test_help_names_every_exit_code(run_fleet: RunFleet) -> None:
    printed = run_fleet("--help")

    assert printed.returncode == 0
    codes = printed.stdout.partition("exit codes:")[2]
    assert [line.split()[0] for line in codes.strip().splitlines()] == [
        *("0", "1", "2", "3", "4", "5", "130")
    ]
