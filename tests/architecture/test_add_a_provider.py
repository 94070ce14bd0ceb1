"""What CONTRIBUTING says of adding a provider is followed in a copy of the tree."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.architecture import recipes
from tests.architecture.recipes import follow, steps_of
from tests.rigs.process import Completed

TITLE = "Add a provider"
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
class Tree(recipes.Tree):
    """A copy of the tree with the kind in it, and a folder that has a fleet.yaml."""

    def fleet(self, *arguments: str) -> Completed:
        return self.run("fleet", *arguments)

    def actions(self) -> list[str]:
        plan = json.loads(self.fleet("plan", "--json").stdout)
        return [each["action"] for each in plan["actions"]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    root, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("toy")
    follow(TITLE, root, "fleet", "stacks", "simulators", package="Machines on a shelf.")
    (folder / "shelf").mkdir()
    (folder / "fleet.yaml").write_text(FLEET)
    yield Tree(root, folder)
    shutil.rmtree(root)


def test_provider_is_added_in_five_places() -> None:
    assert 1 <= len(steps_of(TITLE)) <= 5


@pytest.mark.slow
def test_added_provider_passes_lint(tree: Tree) -> None:
    tree.lint("fleet/clouds/shelf", "stacks/shelf")


@pytest.mark.slow
def test_added_provider_passes_the_contract_suite(tree: Tree) -> None:
    tree.test("tests/ports/test_provider.py", "-k", "shelf")


@pytest.mark.slow
def test_machines_of_added_provider_are_planned_created_and_deleted(tree: Tree) -> None:
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
