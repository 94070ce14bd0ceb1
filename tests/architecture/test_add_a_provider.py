"""What CONTRIBUTING says of adding a provider is followed in a copy of the tree."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rigs.process import Completed, clean_environment, run_process

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## Add a provider\n(.*?)^## ", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\d\. `([^`]+)`(.*?)(?=^\d\. |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLEET = """\
fleet: toy
providers: {here: {kind: shelf, path: shelf}}
queues: {jobs: {kind: tickets, answer: "{name}"}}
images: {trixie: {suite: trixie, architecture: amd64}}
pools:
  builders:
    provider: here
    machine: {cores: 4, memory: 8GiB, price: 0.10 EUR/h}
    image: trixie
    workers: {min: 2, max: 2}
"""


@dataclass(frozen=True)
class Tree:
    """A copy of the tree with the kind in it, and a folder that has a fleet.yaml."""

    root: Path
    folder: Path

    def run(self, *arguments: str, cwd: Path | None = None) -> Completed:
        environment = clean_environment(self.folder, {"PYTHONPATH": str(self.root)})
        there = cwd or self.folder
        return run_process(sys.executable, "-m", *arguments, cwd=there, env=environment)

    def fleet(self, *arguments: str) -> Completed:
        return self.run("fleet", *arguments)

    def actions(self) -> list[str]:
        plan = json.loads(self.fleet("plan", "--json").stdout)
        return [each["action"] for each in plan["actions"]]


def _steps() -> list[tuple[str, list[tuple[str, str]]]]:
    section = SECTION.search((ROOT / "CONTRIBUTING.md").read_text())
    assert section
    return [(place, BLOCK.findall(text)) for place, text in STEP.findall(section[1])]


def _follow(root: Path, place: str, language: str, text: str) -> None:
    if language == "sh":
        subprocess.run(["sh", "-ec", text], cwd=root, check=True)
        return
    file = root / place
    if language == "python":
        file.parent.mkdir()
        (file.parent / "__init__.py").write_text('"""Machines on a shelf."""\n')
        file.write_text(text)
        return
    assert language == "diff"
    lines = text.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert file.read_text().count(before) == 1, before
    file.write_text(file.read_text().replace(before, after))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    root, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("toy")
    for part in ("fleet", "stacks", "simulators"):
        shutil.copytree(ROOT / part, root / part)
    shutil.copytree(ROOT / "tests", root / "tests", ignore=shutil.ignore_patterns("plans", "live"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for place, blocks in _steps():
        for language, text in blocks:
            _follow(root, place, language, text)
    (folder / "shelf").mkdir()
    (folder / "fleet.yaml").write_text(FLEET)
    yield Tree(root, folder)
    shutil.rmtree(root)


def test_a_provider_is_added_in_five_places() -> None:
    assert 1 <= len(_steps()) <= 5


@pytest.mark.slow
def test_an_added_provider_passes_lint(tree: Tree) -> None:
    linted = tree.run("ruff", "check", "fleet/clouds/shelf", "stacks/shelf", cwd=tree.root)

    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.slow
def test_an_added_provider_keeps_what_every_provider_promises(tree: Tree) -> None:
    suite = ("tests/ports/test_provider.py", "-k", "shelf", "-n", "0", "-q")

    tested = tree.run("pytest", "-p", "no:cacheprovider", *suite, cwd=tree.root)

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.slow
def test_machines_of_an_added_provider_are_planned_made_and_deleted(tree: Tree) -> None:
    assert tree.fleet("validate").returncode == 0
    assert tree.fleet("state", "init").returncode == 0
    assert tree.actions() == ["create", "create"]

    assert tree.fleet("apply").returncode == 0

    names = [f"toy-builders-000{number}" for number in (1, 2)]
    assert sorted(each.name for each in (tree.folder / "shelf").iterdir()) == names
    assert tree.actions() == []

    fleet = tree.folder / "fleet.yaml"
    fleet.write_text(FLEET.replace("{min: 2, max: 2}", "{max: 2}\n    retire: {idle_after: 1s}"))

    assert tree.fleet("apply").returncode == 0
    assert list((tree.folder / "shelf").iterdir()) == []
