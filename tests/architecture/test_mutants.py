"""How a change that a test notices is told apart from one that none does."""

import json
import os
import sys

import pytest

from tests.rigs.process import ROOT, clean_environment, run_process

pytestmark = pytest.mark.slow

SURVIVED, KILLED, NO_TESTS, DIED = 0, 1, 33, -9
FILES = {
    "pyproject.toml": """
[tool.mutmut]
source_paths = ["fleet"]
only_mutate = ["fleet/sums.py"]
[tool.pytest.ini_options]
pythonpath = ["."]
""",
    "fleet/__init__.py": "",
    "fleet/sums.py": """
import os

def twice(number):
    return number + number

def up_to_three(number):
    if number > 3:
        os.abort()
    return number

def at_import():
    return 2 + 2

FOUR = at_import()

def forgotten():
    return 1 + 1
""",
    "tests/test_sums.py": """
from fleet.sums import FOUR, twice, up_to_three

def test_twice():
    assert twice(0) == 0

def test_three():
    assert up_to_three(3) == 3

def test_import():
    assert FOUR == 4
""",
}


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """Return what became of the mutants of each function of a small project."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    trial = ROOT / "tools" / "mutant_trial.py"
    env = clean_environment(folder, {"PYTHONWARNINGS": "default", "PYTHONUNBUFFERED": "1"})
    done = run_process(sys.executable, trial, "2", "tests", cwd=folder, env=env)
    assert done.returncode == os.EX_OK, done.stdout + done.stderr
    told = json.loads((folder / "mutants/fleet/sums.py.meta").read_text(encoding="utf-8"))
    found: dict[str, list[int]] = {}
    for name, code in told["exit_code_by_key"].items():
        found.setdefault(name.partition("x_")[2].partition("__mutmut_")[0], []).append(code)
    return found


def test_mutant_without_failing_test_survives(verdicts: dict[str, list[int]]) -> None:
    assert verdicts["twice"] == [SURVIVED]


def test_mutant_that_ends_the_process_is_killed(verdicts: dict[str, list[int]]) -> None:
    assert sorted(verdicts["up_to_three"]) == [DIED, SURVIVED]


def test_mutant_in_module_level_code_is_killed(
    verdicts: dict[str, list[int]],
) -> None:
    assert verdicts["at_import"] == [KILLED, KILLED, KILLED]


def test_mutant_in_uncalled_function_has_no_tests(verdicts: dict[str, list[int]]) -> None:
    assert verdicts["forgotten"] == [NO_TESTS, NO_TESTS, NO_TESTS]
