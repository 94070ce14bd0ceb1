"""What CONTRIBUTING says of adding a rule of life is followed in a copy of the tree."""

import shutil
from collections.abc import Iterator

import pytest

from tests.architecture.recipes import Tree, follow, steps_of

TITLE = "Add a rule of life"
SUITES = (
    "tests/planner/test_idle_cost.py",
    "tests/architecture/test_rules_of_life.py",
    "tests/report/test_reasons_page.py",
    "tests/docs/test_links.py::test_documented_steps_of_a_plan_are_in_order_of_reconcile",
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    root, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("empty")
    follow(TITLE, root, "fleet", "docs/reference", "docs/explanation")
    yield Tree(root, folder)
    shutil.rmtree(root)


def test_rule_of_life_is_added_in_four_places() -> None:
    places = [place for place, _ in steps_of(TITLE) if place.startswith("fleet/")]

    assert len(places) == 4


@pytest.mark.slow
def test_added_rule_of_life_passes_lint(tree: Tree) -> None:
    tree.lint("fleet/planner", "fleet/schema")


@pytest.mark.slow
def test_added_rule_of_life_passes_its_tests(tree: Tree) -> None:
    tree.test(*SUITES)
