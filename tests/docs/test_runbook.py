"""Each refusal names its page, and the page has it."""

import json
import re
from typing import Any

import pytest

import fleet.errors
from fleet.errors import FleetError
from fleet.model.history import Outcome, StackOutcome
from fleet.planner.assembly import ATTENTION_PAGE
from fleet.words.figures import OUTDATED_PAGE, REFUSED_PAGE, page_of_guard
from tests.builders import a_plan
from tests.rigs.process import ROOT
from tests.rigs.shown import outcome_to_text

REFUSALS = [
    each
    for each in vars(fleet.errors).values()
    if isinstance(each, type) and issubclass(each, FleetError) and each.exit_code == 4
]
GUARDS = ("delete", "cost_increase", "rival", "unappliable")


def has(page: str) -> bool:
    """Say whether a page, and its section, is there."""
    path, _, section = page.partition("#")
    text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
    heads = [head.lower().replace(" ", "-") for head in re.findall(r"(?m)^#+ (.*)$", text)]
    return bool(text) and (not section or section in heads)


@pytest.mark.parametrize(
    "page",
    [
        *{each.page for each in REFUSALS},
        *map(page_of_guard, GUARDS),
        *(REFUSED_PAGE, OUTDATED_PAGE),
    ],
)
def test_page_of_each_refusal_and_report_exists(page: str) -> None:
    assert has(page)


@pytest.mark.parametrize(
    ("outcome", "page"),
    [
        (
            {"stacks": (StackOutcome(pool="builders", result="refused", error="it replaces it"),)},
            REFUSED_PAGE,
        ),
        ({"outdated": ("fleet.yaml has changed",)}, OUTDATED_PAGE),
    ],
)
def test_refused_pool_and_outdated_plan_name_their_page(
    outcome: dict[str, Any], page: str
) -> None:
    assert page in outcome_to_text(Outcome(plan="0" * 64, **outcome), a_plan(), colour=False)


def test_attention_page_has_a_section_per_kind() -> None:
    lines = [
        line
        for plan in (ROOT / "tests" / "plans").glob("*/plan.json")
        for line in json.loads(plan.read_text(encoding="utf-8")).get("attention", ())
    ]
    page = (ROOT / ATTENTION_PAGE).read_text(encoding="utf-8")
    sections = re.findall(r"(?m)^## (.*)$", page)

    assert {line.rpartition("; see ")[2] for line in lines} == {
        f"{ATTENTION_PAGE}#{section.lower().replace(' ', '-')}" for section in sections
    }
