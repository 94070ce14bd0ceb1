"""Laws of the allow-list: RE2 agrees with Python's re, and many at once with one by one."""

import re
from datetime import date, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fleet.schema.model import Fleet
from fleet.tagrules.allow import (
    AllowList,
    compile_pattern,
    read_pattern,
    rules_for_name,
    takes_all_of,
)
from tests.builders import a_fleet

TODAY = date(2026, 11, 21)

names = st.text("ab/:-.é", max_size=12)
atoms = st.sampled_from(
    ["a", "b", "/", ":", "-", r"\.", "é", ".", "[^/]", "[ab]", "(a|b)", "(?:/a)", r"\w"]
)
pieces = st.builds("{}{}".format, atoms, st.sampled_from(["", "", "", "*", "+", "?", "{1,2}"]))
patterns = st.lists(pieces | st.sampled_from([".*", "[^/]+"]), max_size=6).map("".join)
TASKS = ("sbuild", "autopkgtest", "")
tasks = st.sampled_from(TASKS)
expiries = st.none() | st.integers(-2, 2).map(lambda days: TODAY + timedelta(days=days))


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet with some rules."""
    rules = [
        {"match": pattern or "a", "ask": ["x"], "dirs": draw(st.booleans())}
        | ({"expires": day.isoformat()} if (day := draw(expiries)) else {})
        | ({"task": task} if (task := draw(tasks)) else {})
        for pattern in draw(st.lists(patterns, max_size=5))
    ]
    return a_fleet(powerful=rules)


@given(patterns, names)
def test_pattern_matches_like_python_fullmatch(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern, name, re.ASCII) is not None

    assert compile_pattern(pattern).takes(name) == expected


@given(fleets(), st.lists(names, max_size=5), st.none() | tasks)
def test_batch_matching_equals_single_matching(
    fleet: Fleet, some: list[str], task: str | None
) -> None:
    together = AllowList(fleet, TODAY)

    for name in some:
        assert together.rules_for_name(name, task) == rules_for_name(fleet, name, TODAY, task)


@given(fleets(), names, st.sets(tasks))
def test_names_of_several_tasks_match_rules_of_each(
    fleet: Fleet, name: str, some: set[str]
) -> None:
    counted = AllowList(fleet, TODAY).count_names({name: some})

    each = {m.index for task in some for m in rules_for_name(fleet, name, TODAY, task)}
    every = {m.index for m in rules_for_name(fleet, name, TODAY) if m.rule.task is None}
    assert {index for index, found in counted.items() if found} == each | every


@given(fleets(), names, tasks)
def test_task_only_removes_rules(fleet: Fleet, name: str, task: str) -> None:
    every = rules_for_name(fleet, name, TODAY)

    found = rules_for_name(fleet, name, TODAY, task)

    assert found == tuple(match for match in every if match.rule.task in (None, task))


@given(fleets(), names)
def test_expired_rule_never_applies(fleet: Fleet, name: str) -> None:
    for match in rules_for_name(fleet, name, TODAY):
        assert match.rule.expires is None or match.rule.expires >= TODAY


@given(fleets(), names)
def test_additional_rule_removes_no_match(fleet: Fleet, name: str) -> None:
    fewer = fleet.model_copy(update={"powerful": fleet.powerful[:-1]})

    before = rules_for_name(fewer, name, TODAY)

    assert rules_for_name(fleet, name, TODAY)[: len(before)] == before


@given(patterns, patterns, names)
def test_wider_pattern_matches_all_names_of_narrower(wide: str, narrow: str, name: str) -> None:
    claimed = takes_all_of(read_pattern(wide) or (), read_pattern(narrow) or ())

    if claimed and compile_pattern(narrow).takes(name):
        assert compile_pattern(wide).takes(name)
