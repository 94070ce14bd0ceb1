"""No value can move the cursor, and that columns align."""

import re

import pytest

from fleet.report.terminal import Span, Style, clean, line, lines_to_text, table, wrapped


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
def test_invisible_characters_are_written_out(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


def test_ordinary_text_stays_as_it_is() -> None:
    assert clean("Bücher, 本 and 1 €") == "Bücher, 本 and 1 €"


def test_a_hostile_value_cannot_colour_a_plain_text() -> None:
    assert "\x1b" not in lines_to_text([line("a\x1b[31mb")], colour=False)


def test_a_hostile_value_cannot_end_its_own_style() -> None:
    assert lines_to_text([line(Span("a\x1b[0mb", Style.RED))], colour=True) == (
        "\x1b[31ma\\x1b[0mb\x1b[0m\n"
    )


def test_styles_are_left_out_without_colour() -> None:
    assert lines_to_text([line(Span("a", Style.RED), "b")], colour=False) == "ab\n"


def test_columns_align_and_numbers_to_the_right() -> None:
    rows = [[Span("a"), Span("1"), Span("x")], [Span("long"), Span("100"), Span("yy")]]

    text = lines_to_text(table(rows, right=(1,)), colour=False)

    assert text == "a       1  x\nlong  100  yy\n"


def test_columns_align_on_what_is_seen() -> None:
    rows = [[Span("a\n"), Span("1")], [Span("bcd"), Span("2")]]

    text = lines_to_text(table(rows), colour=False)

    assert text == "a\\n  1\nbcd  2\n"


def test_no_line_ends_in_blanks() -> None:
    rows = [[Span("a"), Span("")], [Span("b"), Span("c")]]

    assert lines_to_text(table(rows), colour=False) == "a\nb  c\n"


def test_no_rows_make_no_lines() -> None:
    assert table([]) == []


def test_a_long_line_wraps_at_words_with_a_hanging_indent() -> None:
    words = "eleven " * 30

    text = lines_to_text(wrapped([line("  ! ", Span(words, Style.RED), "end")]), colour=False)

    first, *others = text.splitlines()
    assert first.startswith("  ! eleven ")
    assert all(re.match("    (eleven|end)", each) for each in others)
    assert all(len(each) <= 100 for each in text.splitlines())
    assert text.split() == ["!", *words.split(), "end"]


@pytest.mark.parametrize(
    "whole", ["`fleet image promote trixie 20261121T060000Z`", "2026-11-21 08:00 UTC", "1h 20m 5s"]
)
def test_what_belongs_together_is_not_wrapped(whole: str) -> None:
    for before in range(60, 100):
        text = lines_to_text(wrapped([line("x" * before, " ", whole, " end")]), colour=False)

        assert sum(whole in each for each in text.splitlines()) == 1


def test_quoted_output_and_a_long_name_are_not_cut() -> None:
    for text in (f"    | {'quoted ' * 30}end", f"  {'x' * 200}"):
        assert lines_to_text(wrapped([line(text)]), colour=False) == f"{text}\n"


def test_figures_that_do_not_fit_stand_below_their_name() -> None:
    rows = [[Span("NAME"), Span("COST")], [Span("x" * 98), Span("0.12")]]

    text = lines_to_text(table(rows, right=(1,)), colour=False)

    assert text == f"NAME\n    COST\n{'x' * 98}\n    0.12\n"
