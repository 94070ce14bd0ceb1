"""`fleet completion`: a script that the shell accepts."""

import shutil
from pathlib import Path

import pytest

from tests.rigs.process import RunFleet, clean_environment, run_process

ASK_BASH = 'COMP_WORDS=(fleet ""); COMP_CWORD=1; _shtab_fleet; echo "${COMPREPLY[@]}"\n'


@pytest.fixture
def bash() -> str:
    found = shutil.which("bash")
    if found is None:
        pytest.skip("bash is not installed")
    return found


def test_completion_prints_a_script_that_bash_accepts(
    run_fleet: RunFleet, bash: str, tmp_path: Path
) -> None:
    printed = run_fleet("completion", "bash")

    checked = run_process(
        bash, "-n", cwd=tmp_path, env=clean_environment(tmp_path), stdin=printed.stdout
    )

    assert (printed.returncode, printed.stderr) == (0, "")
    assert (checked.returncode, checked.stderr) == (0, "")


def test_completion_offers_every_verb(run_fleet: RunFleet, bash: str, tmp_path: Path) -> None:
    printed = run_fleet("completion", "bash")

    asked = run_process(
        bash,
        cwd=tmp_path,
        env=clean_environment(tmp_path),
        stdin=f"{printed.stdout}\n{ASK_BASH}",
    )

    verbs = {"validate", "schema", "observe", "plan", "apply", "status", "explain", "state"}
    assert verbs <= set(asked.stdout.split())
