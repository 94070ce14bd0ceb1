"""What CONTRIBUTING says of adding a figure of a pool is followed in a copy of the tree."""

import shutil
from collections.abc import Iterator

import pytest

from tests.architecture.recipes import Tree, follow, steps_of

TITLE = "Add a figure of a pool to the plan"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    root, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("empty")
    follow(TITLE, root, "fleet")
    yield Tree(root, folder)
    shutil.rmtree(root)


def test_figure_is_added_in_three_places() -> None:
    places = [place for place, _ in steps_of(TITLE) if place.startswith("fleet/")]

    assert len(places) == 3


@pytest.mark.slow
def test_added_figure_passes_lint(tree: Tree) -> None:
    tree.lint("fleet/model", "fleet/planner", "fleet/report", "tests/report")


@pytest.mark.slow
def test_added_figure_passes_its_tests(tree: Tree) -> None:
    tree.test("tests/report/test_outdated_machines.py", "tests/planner/test_decisions.py")
