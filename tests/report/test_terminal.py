"""No value can move the cursor, columns align, and lines fit any terminal."""

import re

import pytest

from fleet.report.document import (
    Block,
    Column,
    ColumnKind,
    Row,
    Style,
    StyledText,
    Table,
    figures,
    line,
)
from fleet.report.terminal import clean, document_to_text
from tests.builders.telling import a_lively_plan, a_noted_plan, a_telling_plan
from tests.report.test_comparison import a_telling_change
from tests.rigs.shown import plan_to_text, status_to_text


def text_of(*blocks: Block, width: int = 100) -> str:
    return document_to_text(blocks, width=width)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("right\u202eleft", r"right\u202eleft"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("\ud800", r"\ud800"),
    ],
)
def test_invisible_characters_are_escaped(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


def test_value_cannot_add_colour_to_plain_text() -> None:
    assert "\x1b" not in text_of(line("a\x1b[31mb"))


def test_value_cannot_end_its_style() -> None:
    text = document_to_text([line(StyledText("a\x1b[0mb", Style.RED))], colour=True)

    assert text == "\x1b[31ma\\x1b[0mb\x1b[0m\n"


def test_columns_align_when_names_have_wide_characters_or_accents() -> None:
    names = ("本番", "ab", "e\u0301e\u0301", "한")
    columns = (Column("NAME", ColumnKind.NAME), Column("用", ColumnKind.FIGURE), Column("T"))

    first, *rows = text_of(Table(columns, [Row((name, "1", "x")) for name in names])).splitlines()

    assert first == "NAME  用  T"
    assert rows == ["本番   1  x", "ab     1  x", "e\u0301e\u0301     1  x", "한     1  x"]


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("word", ["本番", "日本語", "한국", "🚧"])
def test_line_of_wide_characters_fits_the_terminal(word: str, width: int) -> None:
    text = text_of(line("  ! ", f"{word} " * 40, "end"), width=width)

    widths = [sum(2 if char in word else 1 for char in each) for each in text.splitlines()]
    assert max(widths) <= width
    assert widths[0] > width - 12
    assert text.split().count(word) == 40


def test_long_line_wraps_at_words_with_a_hanging_indent() -> None:
    words = "eleven " * 30

    text = text_of(line("  ! ", StyledText(words, Style.RED), "end"))

    first, *others = text.splitlines()
    assert first.startswith("  ! eleven ")
    assert all(re.match("    (eleven|end)", each) for each in others)
    assert all(len(each) <= 100 for each in text.splitlines())
    assert text.split() == ["!", *words.split(), "end"]


@pytest.mark.parametrize(
    "whole", ["`fleet image promote trixie 20261121T060000Z`", "2026-11-21 08:00 UTC", "1h 20m 5s"]
)
def test_unbreakable_text_is_not_wrapped(whole: str) -> None:
    for before in range(60, 100):
        text = text_of(line("x" * before, " ", whole, " end"))

        assert sum(whole in each for each in text.splitlines()) == 1


def test_quoted_output_and_long_names_are_not_truncated() -> None:
    for text in (f"    | {'quoted ' * 30}end", f"  {'x' * 200}"):
        assert text_of(line(text)) == f"{text}\n"


def test_figures_are_below_their_name_when_too_wide() -> None:
    text = text_of(figures(("NAME", "COST"), [("x" * 98, "0.12")]))

    assert text == f"NAME\n{'x' * 98}\n    cost 0.12\n"


@pytest.mark.parametrize("width", [60, 70, 80, 120])
def test_columns_are_below_their_row_in_narrow_terminal(width: int) -> None:
    columns = (
        Column("NAME", ColumnKind.NAME),
        Column("STATE"),
        Column("IMAGE", fold=1),
        Column("TYPE", fold=2),
        Column("COST", ColumnKind.FIGURE),
    )
    row = Row(("debian-ci-builders-0001", "busy", "trixie-20261121T060000Z", "ccx33", "0.12"))

    text = text_of(Table(columns, [row]), width=width)

    assert max(map(len, text.splitlines())) <= width
    assert re.sub(r"\s+", " ", text).count("trixie-20261121T060000Z") == 1
    assert ("\n    type ccx33\n" in text or "image trixie" in text) == (width < 70)


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 200])
def test_every_line_of_a_report_fits_the_terminal(width: int) -> None:
    for plan in (a_telling_plan(), a_lively_plan(), a_noted_plan()):
        for text in (
            plan_to_text(plan, width=width),
            plan_to_text(plan, change=a_telling_change(), width=width),
            status_to_text(plan, width=width),
        ):
            assert [each for each in text.splitlines() if len(each) > width] == []
