"""What CONTRIBUTING says of adding a key is followed in a copy of the tree."""

import shutil
from collections.abc import Iterator

import pytest

from tests.architecture.recipes import Tree, follow, steps_of

TITLE = "Add a key"
SUITES = (
    "tests/planner/test_max_new.py",
    "tests/architecture/test_rules_of_life.py",
    "tests/report/test_reasons_page.py",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    root, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("empty")
    follow(TITLE, root, "fleet", "docs/reference")
    yield Tree(root, folder)
    shutil.rmtree(root)


def test_key_is_added_in_five_places() -> None:
    places = [place for place, _ in steps_of(TITLE) if place.startswith("fleet/")]

    assert len(places) == 5


@pytest.mark.slow
def test_added_key_passes_lint(tree: Tree) -> None:
    tree.lint("fleet", "tests/planner/test_max_new.py")


@pytest.mark.slow
def test_added_key_passes_its_tests(tree: Tree) -> None:
    tree.test(*SUITES)
