"""Change the code of decisions in small ways, and report the changes that no test notices.

Run: python tools/mutants.py [TARGET ...] (or `nox -s mutants -- TARGET ...`). mutmut changes a
copy of this tree, and tools/mutant_trial.py runs the tests. tests/mutants.toml has the modules and
tests of each target, and reasons why some changes may survive. An interrupted run continues where
it stopped. The next run tests the surviving changes again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PLAN = ROOT / "tests" / "mutants.toml"
COPIES = ROOT / ".nox" / "mutants"
TRIAL = ROOT / "tools" / "mutant_trial.py"
MUTMUT = Path(sys.executable).parent / "mutmut"
NOTICED = frozenset({"killed", "timeout", "caught by type check", "segfault"})


@dataclass(frozen=True)
class Mutant:
    """One change of the code; `noticed`: a test failed for it."""

    name: str
    noticed: bool

    @property
    def function(self) -> str:
        """Return the changed function, for example fleet.guard._withhold_all."""
        module, _, mangled = self.name.rpartition(".")
        plain = mangled.partition("__mutmut_")[0].removeprefix("x_").removeprefix("xǁ")
        return f"{module}.{plain.replace('ǁ', '.')}"

    @property
    def module(self) -> str:
        """Return the changed module, for example fleet.guard."""
        return self.name.rpartition(".")[0]


def main(names: Sequence[str]) -> int:
    """Test the named targets, or all; return 1 if too many changes survive."""
    plan = tomllib.loads(PLAN.read_text(encoding="utf-8"))
    failed = False
    for name in names or plan["targets"]:
        target = plan["targets"][name]
        folder = prepare(name, target)
        jobs = os.environ.get("FLEET_MUTANT_JOBS", "2")
        subprocess.run([sys.executable, TRIAL, jobs, *target["tests"]], cwd=folder, check=True)
        mutants = list(results(folder))
        reasons = [each for each in plan.get("survivors", ()) if each["target"] == name]
        alive = list(unexplained(folder, mutants, reasons))
        print("\n".join(table(mutants)))
        for mutant, diff in alive:
            print(f"no test notices, and no reason is written down: {mutant.name}\n{diff}")
        share = 100 * sum(mutant.noticed for mutant in mutants) / len(mutants)
        failed |= share < plan["least_percent"] or (target.get("every", False) and bool(alive))
    return int(failed)


def prepare(name: str, target: Mapping[str, Any]) -> Path:
    """Copy the tree to the folder of a target's mutants, and configure mutmut there."""
    folder = COPIES / name
    for old in ("fleet", "tests", "mutants/tests"):  # the verdicts stay, in mutants/fleet
        shutil.rmtree(folder / old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    listed = ("git", "ls-files", "--cached", "--others", "--exclude-standard")
    paths = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    for path in paths.splitlines():
        if (ROOT / path).is_file():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, folder / path)
    with (folder / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write("\n".join(settings(target)))
    return folder


def settings(target: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the table [tool.mutmut]."""
    yield "[tool.mutmut]"
    yield 'source_paths = ["fleet"]'
    yield f"only_mutate = {target['modules']}"
    yield 'also_copy = ["fleet", "stacks", "bench", "contrib", "simulators", "docs"]\n'


def results(folder: Path) -> Iterator[Mutant]:
    """Yield every mutant of a copy with its result."""
    for line in ask(folder, "results", "--all", "true").splitlines():
        name, _, said = line.strip().rpartition(": ")
        if "__mutmut_" in name:
            yield Mutant(name, said in NOTICED)


def unexplained(
    folder: Path, mutants: Sequence[Mutant], reasons: Sequence[Mapping[str, str]]
) -> Iterator[tuple[Mutant, str]]:
    """Yield the surviving mutants without a reason in tests/mutants.toml, each with its change."""
    for mutant in mutants:
        if mutant.noticed:
            continue
        lines = ask(folder, "show", mutant.name).splitlines()
        diff = "\n".join(line for line in lines if line.startswith(("+ ", "- ")))
        if not any(r["in"] == mutant.function and r["change"] in diff for r in reasons):
            yield mutant, diff


def table(mutants: Sequence[Mutant]) -> Iterator[str]:
    """Yield the share of killed mutants per module, as lines of text."""
    total = Counter(mutant.module for mutant in mutants)
    noticed = Counter(mutant.module for mutant in mutants if mutant.noticed)
    for module in [*sorted(total), None]:
        of = total[module] if module else total.total()
        count = noticed[module] if module else noticed.total()
        print_name = module or "all"
        yield f"{print_name:<28} {count:>5} of {of:>5} noticed ({100 * count / of:.1f}%)"


def ask(folder: Path, *args: str) -> str:
    """Return the output of mutmut."""
    return subprocess.run(
        [MUTMUT, *args], cwd=folder, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
