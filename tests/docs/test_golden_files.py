"""`--update-golden` writes what a command prints into a page, unless the command fails now."""

import re
from pathlib import Path

import pytest

from tests.rigs.golden import Golden

PAGE = "# A page\n\n```console\n$ fleet validate\nfleet.yaml: valid\n\n$ fleet plan\n{plan}```\n"
FAILED = "error: no Pulumi CLI\n[exit code 1]\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE.format(plan="1 to create\n"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("was", "becomes"), [("1 to create\n", "2 to create\n"), ("[exit code 1]\n", FAILED)]
)
def test_page_is_rewritten_when_its_output_changes(page: Path, was: str, becomes: str) -> None:
    page.write_text(PAGE.format(plan=was), encoding="utf-8")
    now = PAGE.format(plan=becomes)
    with pytest.raises(AssertionError, match="update-golden"):
        Golden(updates=False).compare(page, now)

    Golden(updates=True).compare(page, now)

    assert page.read_text(encoding="utf-8") == now


def test_page_is_not_rewritten_when_a_command_fails(page: Path) -> None:
    before = page.read_text(encoding="utf-8")

    with pytest.raises(AssertionError, match=r"`fleet plan`"):
        Golden(updates=True).compare(page, PAGE.format(plan=FAILED))

    assert page.read_text(encoding="utf-8") == before


def test_line_is_kept_when_only_variable_parts_differ(page: Path) -> None:
    page.write_text(PAGE.format(plan="1 to create\nObserved 3 s ago\n"), encoding="utf-8")
    now = PAGE.format(plan="2 to create\nObserved 5 s ago\n")

    Golden(updates=True).compare(page, now, lambda text: re.sub(r"\d s", "N s", text))

    kept = PAGE.format(plan="2 to create\nObserved 3 s ago\n")
    assert page.read_text(encoding="utf-8") == kept
