"""The check of names finds fragments, shared class names, and odd names of tests."""

import ast

import pytest

from tools.names import Hit, find_excess, find_in_program, find_in_tests


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("def _listed(): ...", "function-participle"),
        ("def _of_pool(): ...", "function-preposition"),
        ("def _why_left(): ...", "function-question"),
        ("def _may_run(): ...", "function-fragment"),
        ("def _own(): ...", "function-adjective"),
        ("_MOST = 3", "constant-adjective"),
        ("_FIRST, _LAST = 1, 2", "constants-in-one-line"),
    ],
)
def test_check_reports_rule_when_private_name_is_a_fragment(line: str, rule: str) -> None:
    hits = [*find_in_program({"fleet/a.py": ast.parse(f"\n{line}")})]

    assert [(hit.rule, hit.place) for hit in hits] == [(rule, "fleet/a.py:2")]


@pytest.mark.parametrize(
    "line",
    [
        "def _midnight(): ...",
        "def _accept(): ...",
        "def _seed(): ...",
        "def _list_pools(): ...",
        "_MAX_ROWS = 3",
        "first, last = 1, 2",
    ],
)
def test_check_accepts_private_name_with_verb_or_noun(line: str) -> None:
    assert [*find_in_program({"fleet/a.py": ast.parse(line)})] == []


def test_check_reports_both_places_when_classes_share_a_name() -> None:
    tree = ast.parse("class Row: ...")

    hits = [*find_in_program({"fleet/a.py": tree, "fleet/b.py": tree})]

    assert hits == [Hit("class-in-several-modules", "fleet/a.py:1, fleet/b.py:1", "Row")]


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("test_" + "a" * 60, []),
        ("test_" + "a" * 61, ["test-too-long"]),
        ("test_what_waits_is_counted", ["test-with-clause"]),
        ("test_plan_restarts_anew", ["test-with-clause"]),
        ("test_plan_names_whole_pool", []),
        ("test_a_pool_creates_a_machine", ["test-without-subject"]),
        ("test_the_plan_is_printed", ["test-without-subject"]),
        ("test_of_two_pools_one_is_full", ["test-without-subject"]),
        ("test_where_a_pool_is_full_it_waits", ["test-without-subject"]),
        ("test_its_token_is_revoked", ["test-without-subject"]),
        ("test_aws_prices_replace_the_catalogue", []),
        ("test_items_of_a_list_are_sorted", []),
    ],
)
def test_check_reports_test_name_when_long_or_without_subject(name: str, rules: list[str]) -> None:
    tree = ast.parse(f"def {name}(): ...")

    assert [hit.rule for hit in find_in_tests({"tests/test_a.py": tree})] == rules


def test_excess_has_all_hits_of_rule_when_above_its_limit() -> None:
    hits = [Hit("test-too-long", "tests/a.py:1", "test_a"), Hit("x", "fleet/a.py:2", "_b")]

    assert [*find_excess(hits, {"x": 1})] == ["tests/a.py:1: test_a (test-too-long)"]


def test_excess_asks_for_lower_limit_when_count_fell() -> None:
    assert [*find_excess([], {"x": 1})] == [
        "lower tool.fleet.names.x in pyproject.toml from 1 to 0"
    ]
