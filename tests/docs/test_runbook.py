"""Each refusal names its page, and the page has it."""

import re

import pytest

import fleet.errors
from fleet.errors import FleetError
from fleet.report.words import ATTENTION_HEADING, page_of_guard
from tests.rigs.process import ROOT

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


@pytest.mark.parametrize("error", REFUSALS, ids=lambda each: each.__name__)
def test_each_error_that_is_a_refusal_has_its_page(error: type[FleetError]) -> None:
    assert has(error.page)


@pytest.mark.parametrize("guard", GUARDS)
def test_each_guard_that_refuses_has_its_section(guard: str) -> None:
    assert has(page_of_guard(guard))


def test_what_needs_a_person_has_its_page() -> None:
    assert has(ATTENTION_HEADING.partition("(")[2].rstrip(")"))
