"""A saved plan of a merge request says what its author likes; the report of it does nothing."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pydantic import ValidationError

from fleet.explain.changes import ComparedPlan
from fleet.report.json import plan_to_json
from fleet.report.markdown import cut
from fleet.report.plan import plan_to_markdown
from tests.builders.telling import a_lively_plan, a_noted_plan, a_telling_plan
from tests.report.test_comparison import a_telling_change
from tests.rigs.shown import plan_to_text, status_to_text

Path = tuple[str | int, ...]
HOSTILE = (
    "@all",
    "ada@all",
    "/approve",
    "a\n\n/approve\n\n/merge",
    "a\r\n/close",
    "a\u2028/close\u2029/close",
    "a\x0b/close\x0c/close",
    "<script>alert(1)</script>",
    "</details></summary><b>x",
    "<!-- fleet report 0123456789abcdef -->",
    "<!--",
    "<img src=x onerror=alert(1)>",
    "![x](https://evil.example.org/x.png)",
    "[x](javascript:alert(1))",
    "[x][y]\n\n[y]: https://evil.example.org",
    "https://evil.example.org",
    "www.evil.example.org",
    "#1 !2 ~bug %1 &3 $4 ^5",
    "debian/fleet#1 debian/fleet!2 KEY-17",
    "0123abcdef0123abcdef",
    "`a` ``b` ```c",
    "```\n/approve\n```",
    "~~~",
    "    indented\n\tmore",
    "a|b|c",
    "\\|\\`\\",
    "**bold** __it__ _a_ ~~s~~",
    "- item\n- item\n1. one",
    "# heading\n=====\n---",
    "> quoted",
    "$`math`$ $$x$$",
    ":smile: [[wiki]] {+a+} [-b-]",
    "&lt;b&gt; &#64;all &#x2F;approve",
    "\x1b[2J\x1b]8;;https://evil.example.org\x07x",
    "\u202eevil\u2066x\u200bx\ufeff",
    "(@all)",
    'it\'s @all, "/approve"; {env: @all} `@all /approve`',
    "`fleet apply`\n/approve",
    "{a: `@all`}",
    "-> @all",
)
FOLDS = re.compile(r"(<details><summary>[^<>&@\n]*</summary>|</details>)\n?")
REFERENCE = re.compile(
    r"@\w|(?:^|\W)[#!~%&$^]\w|https?:|www\.|\[\[|\$`|:\w+:|[0-9a-f]{12}|[A-Z]{2,}-\d|<|&\w+;"
)


@cache
def examples() -> tuple[dict[str, Any], ...]:
    """Return saved plans that have something to say of everything."""
    change = a_telling_change()
    plans = (a_telling_plan(), a_lively_plan(), a_noted_plan())
    return tuple(json.loads(plan_to_json(plan, change, 600)) for plan in plans)


def places(value: object, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every text in a saved plan."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from places(part, (*path, number))


def put(value: Any, path: Path, text: str) -> None:  # noqa: ANN401 - JSON
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = text


@cache
def free(number: int) -> tuple[Path, ...]:
    """Return the places of a saved plan that take any text."""
    found = []
    for path in places(examples()[number]):
        plan = json.loads(json.dumps(examples()[number]))
        put(plan, path, "@all\n/approve")
        try:
            ComparedPlan.model_validate(plan)
        except ValidationError:
            continue
        found.append(path)
    return tuple(found)


def filled(number: int, text: str) -> ComparedPlan:
    """Return a saved plan with a text in each place that takes it."""
    plan = json.loads(json.dumps(examples()[number]))
    for path in free(number):
        put(plan, path, text)
    return ComparedPlan.model_validate_json(json.dumps(plan))


def rendered(number: int, text: str) -> str:
    made = filled(number, text)
    return plan_to_markdown(made, made.change, "Observed 3 min ago")


def acting(text: str) -> list[str]:
    """Return what in Markdown does something: links, references, HTML, quick actions."""
    reader = MarkdownIt("commonmark").enable("table").enable("strikethrough")
    return [found for token in reader.parse(text) for found in _acting(token)]


def _acting(token: Token) -> Iterator[str]:
    if token.type == "html_block" and not FOLDS.fullmatch(token.content):
        yield token.content
    if token.type in ("fence", "code_block", "hr", "blockquote_open", "ordered_list_open"):
        yield token.type
    for child in token.children or ():
        if child.type == "text" and (
            REFERENCE.search(child.content) or child.content.lstrip().startswith("/")
        ):
            yield child.content
        elif child.type not in ("text", "code_inline", "strong_open", "strong_close", "softbreak"):
            yield f"{child.type} {child.content}"


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_saved_plan_is_escaped_in_report(number: int, text: str) -> None:
    report = rendered(number, text)

    assert acting(report) == []
    assert [line for line in report.splitlines() if line.lstrip().startswith("/")] == []
    assert "".join(report.split("\n")).isprintable()


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("text", [each for each in HOSTILE if not each.isprintable()])
def test_text_of_saved_plan_is_escaped_in_terminal(number: int, text: str) -> None:
    made = filled(number, text)

    for shown in (plan_to_text(made, change=made.change, width=60), status_to_text(made)):
        assert "".join(shown.split("\n")).isprintable()
        assert [each for each in shown.splitlines() if each.startswith("/")] == []


@pytest.mark.parametrize("number", [0, 1, 2])
def test_plans_of_these_tests_have_text_in_many_fields(number: int) -> None:
    assert len(free(number)) > 50
    assert acting(rendered(number, "plain")) == []


@pytest.mark.parametrize(
    "text", ["@ada", "x\n\n/approve", "<b>x</b>", "[a](b)", "see #1", "https://example.org"]
)
def test_hostile_markdown_is_detected(text: str) -> None:
    assert acting(text) != []


@pytest.mark.parametrize("most", [300, 500, 1000, 2000, 3000])
def test_truncated_report_closes_its_folded_parts(most: int) -> None:
    report = rendered(0, "<details>")

    shorter = cut(report, most, "_the rest is there_")

    assert len(shorter) <= most
    assert shorter.endswith("\n\n_the rest is there_\n")
    assert shorter.count("\n<details>") == shorter.count("\n</details>")
    assert {child for child in acting(shorter) if not child.startswith("em_")} <= {
        "the rest is there"
    }
