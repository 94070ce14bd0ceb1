"""Follow a section of CONTRIBUTING in a copy of the tree."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.rigs.process import ROOT, Completed, clean_environment, run_process

STEP = re.compile(r"^\d\. `([^`]+)`(.*?)(?=^\d\. |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Tree:
    """A copy of the tree that follows a recipe, and an empty folder."""

    root: Path
    folder: Path

    def run(self, *arguments: str, cwd: Path | None = None) -> Completed:
        """Run a module of Python with the program of this tree."""
        environment = clean_environment(self.folder, {"PYTHONPATH": str(self.root)})
        there = cwd or self.folder
        return run_process(sys.executable, "-m", *arguments, cwd=there, env=environment)

    def lint(self, *folders: str) -> None:
        """Require that folders of this tree pass lint."""
        self._require("ruff", "check", *folders)

    def test(self, *suites: str) -> None:
        """Require that tests of this tree pass."""
        self._require("pytest", "-p", "no:cacheprovider", *suites, "-n", "0", "-q")

    def _require(self, *arguments: str) -> None:
        done = self.run(*arguments, cwd=self.root)
        assert done.returncode == 0, done.stdout + done.stderr


def steps_of(title: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the steps of a section: the file, and its blocks with their language."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = re.search(rf"^## {title}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert section
    return [(place, BLOCK.findall(step)) for place, step in STEP.findall(section[1])]


def follow(title: str, root: Path, *parts: str, package: str = "") -> None:
    """Copy the tree and follow a section; `package` is the docstring of a new package."""
    for part in parts:
        shutil.copytree(ROOT / part, root / part)
    shutil.copytree(ROOT / "tests", root / "tests", ignore=shutil.ignore_patterns("plans", "live"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for place, blocks in steps_of(title):
        for language, text in blocks:
            _follow(root, place, language, text, package)


def _follow(root: Path, place: str, language: str, text: str, package: str) -> None:
    file = root / place
    if language == "sh":
        subprocess.run(["sh", "-ec", text], cwd=root, check=True)
    elif language == "python":
        if not file.parent.exists():
            file.parent.mkdir()
            (file.parent / "__init__.py").write_text(f'"""{package}"""\n')
        file.write_text(text)
    else:
        assert language == "diff"
        lines = text.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] in " -")
        after = "".join(line[1:] for line in lines if line[0] in " +")
        assert file.read_text().count(before) == 1, before
        file.write_text(file.read_text().replace(before, after))
