"""`fleet validate` of an allow-list: hostile patterns, and beside a recorded queue."""

import json
import resource
import sys
from pathlib import Path

import pytest

from tests.rigs.process import (
    Completed,
    clean_environment,
    fleet_command,
    run_process,
)
from tests.rigs.repeats import slow_but

LARGE = 1_000_000


def write(project: Path, text: str) -> None:
    (project / "fleet.yaml").write_text(text, encoding="utf-8")


HOSTILE = {
    "words": ("a" * LARGE, "error[wrong-value] expected at most 1000 characters"),
    "brackets": ("(" * LARGE, "error[wrong-value] expected at most 1000 characters"),
    "groups": ("(" * 1000, "error[invalid-pattern] not an RE2 pattern: this group is not closed"),
    "repeats": (
        ".{1000}" * 100,
        "error[invalid-pattern] not an RE2 pattern: it takes too much memory",
    ),
    "nested": ("(a*)*" * 200, "valid"),
    "wildcards": (".*" * 500, "warning[pattern-too-wide]"),
    "parts": ("[^/]*/" * 160, "valid"),
    "word": ("a" * 1000, "valid"),
}


@pytest.mark.parametrize("name", slow_but(["repeats"], HOSTILE))
def test_validate_is_fast_and_small_on_hostile_pattern(project: Path, name: str) -> None:
    pattern, said = HOSTILE[name]
    case = "x" * 999
    write(
        project,
        f"fleet: demo\npowerful:\n  - {{match: '{pattern}', ask: [x], rejects: ['/{case}']}}\n"
        "  - {match: '.+/a', ask: [y], matches: [b/a]}\n",
    )

    ran, used = run_measured(project)

    assert said in ran.stdout
    assert ran.stderr == ""
    assert used.ru_utime + used.ru_stime < 10, "CPU seconds: nothing hangs, even when measured"
    assert used.ru_maxrss < 200_000, "KiB"


def run_measured(project: Path) -> tuple[Completed, resource.struct_rusage]:
    """Run validate as the only child of a process of its own, which says what it used."""
    measuring = (
        "import json, pathlib, resource, subprocess, sys;"
        "code = subprocess.run(sys.argv[1:]).returncode;"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "pathlib.Path('used.json').write_text(json.dumps(list(used))); sys.exit(code)"
    )
    ran = run_process(
        *(sys.executable, "-c", measuring, *fleet_command(), "validate"),
        cwd=project,
        env=clean_environment(project),
    )
    used = json.loads((project / "used.json").read_text(encoding="utf-8"))
    return ran, resource.struct_rusage(used)
