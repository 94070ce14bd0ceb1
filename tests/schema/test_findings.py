"""Where a finding stands in its line, and which known word a misspelt one means."""

import pytest

from fleet.schema.findings import Finding, nearest
from fleet.schema.source import read_document
from tests.fakes.files import FakeFiles


def marked(text: str, part: tuple[int, int]) -> str:
    document = read_document("fleet.yaml", FakeFiles({"fleet.yaml": text}))
    assert document.findings == ()
    span = document.locate(Finding("some-rule", "wrong", ("a",), part=part)).span
    assert span is not None
    line = text.splitlines()[span.line - 1]
    return line[span.column - 1 : span.end_column - 1 if span.end_line == span.line else None]


@pytest.mark.parametrize(
    ("text", "part", "characters"),
    [
        ("a: plain", (1, 3), "la"),
        ("a: 'it''s'", (3, 4), "s"),
        ("a: 'it''s'", (2, 3), "''"),
        (r'a: "b\\.\x41\u0041\U00000041c"', (1, 2), r"\\"),
        (r'a: "b\\.\x41\u0041\U00000041c"', (3, 6), r"\x41\u0041\U00000041"),
        (r'a: "b\\.\x41\u0041\U00000041c"', (6, 7), "c"),
        ("a: &anchor plain", (0, 2), "pl"),
        ("a: &anchor 'plain'", (0, 2), "pl"),
        ("{a: é€, b: 1}", (1, 2), "€"),
        ("a: xy", (1, 1), "y"),
        ("a: |\n  plain\n", (1, 3), "la"),
        ("a: &b |-\n\n  one\n   two\n\n  three", (11, 14), "thr"),
        ("a: |\n  one\n  two\nb: 1\n", (5, 7), "wo"),
    ],
)
def test_characters_are_found_in_any_quotes(
    text: str, part: tuple[int, int], characters: str
) -> None:
    assert marked(text, part) == characters


@pytest.mark.parametrize(
    ("text", "part", "characters"),
    [
        ("a: plain", (3, 9), "plain"),
        ("a: >\n  plain", (0, 1), ">"),
        ("a: |\n  one\n  two\n", (2, 6), "|"),
        ("a: one\n  two", (0, 1), "one"),
        ("a: [x, y]", (0, 1), "[x, y]"),
        ('a: "one\\\n  two"', (0, 1), '"one\\'),
    ],
)
def test_whole_value_is_marked_when_characters_are_not_found(
    text: str, part: tuple[int, int], characters: str
) -> None:
    assert marked(text, part) == characters


def test_unwritten_value_has_no_characters() -> None:
    document = read_document("fleet.yaml", FakeFiles({"fleet.yaml": "a: x"}))

    span = document.locate(Finding("some-rule", "wrong", ("b",), part=(0, 1))).span

    assert str(span) == "fleet.yaml:1:1"


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("ccx34", ["ccx33", "ccx63"], "ccx33"),
        ("bildrs", ["builders", "powerful"], "builders"),
        ("TRIXIE-AMD46", ["trixie-amd64", "trixie-arm64"], "trixie-amd64"),
        ("chromium", ["ccx33"], ""),
    ],
)
def test_nearest_word_shares_first_letters_at_equal_distance(
    word: str, known: list[str], meant: str
) -> None:
    assert nearest(word, known) == meant
