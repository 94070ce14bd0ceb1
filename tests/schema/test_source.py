r"""Reading: what a person wrote becomes data with positions, whatever the text does.

Cases of `sources/` are texts of fleet.yaml, d/one.yaml and d/two.yaml, in which `\n` ends a line
and `_` is a space at the beginning of one; the result are places and rules of findings.
"""

from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from fleet.errors import FileUnreadable
from fleet.schema.findings import Finding
from fleet.schema.source import Document, read_document
from tests.builders.cases import Block, read_blocks
from tests.fakes.files import FakeFiles

CASES = [*read_blocks(Path(__file__).parent / "sources")]
NAMES = ("fleet.yaml", "d/one.yaml", "d/two.yaml")


def read(text: str | bytes, *others: str) -> Document:
    return read_document("fleet.yaml", FakeFiles(dict(zip(NAMES, (text, *others), strict=False))))


def told(document: Document) -> list[str]:
    return [f"{found.span}: {found.rule}" for found in map(document.locate, document.findings)]


def text_of(part: str) -> str:
    """Return a text with its lines and spaces."""
    lines = part.encode("latin-1", "backslashreplace").decode("unicode_escape").splitlines()
    return "".join(f"{'  ' * (len(x) - len(x.lstrip('_')))}{x.lstrip('_')}\n" for x in lines)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_text_has_the_findings_and_places_of_its_case(case: Block) -> None:
    document = read(*map(text_of, case.parts))

    assert (", ".join(told(document)) or "fine") == case.result
    for about, words in case.because:
        kind, _, path = about.partition(" ")
        steps = tuple(int(each) if each.isdigit() else each for each in path.split("."))
        match kind:
            case "value":
                assert document.value == yaml.safe_load(words)
            case "at":
                assert document.place(steps) == words.strip()
            case "key":
                assert document.place(steps, "key") == words.strip()
            case "line":
                name, number = path.split()
                assert document.line(name, int(number)) == words.strip().replace("_", "  ")
            case "files":
                assert document.files == tuple(words.split())
            case _:
                assert words.strip() in document.findings[0].message


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *(("null", None), ("~", None), ("", None), ("true", True), ("false", False), ("12", 12)),
        *(("-3", -3), ("0.92", 0.92), ("20.0", 20), ("yes", "yes"), ("off", "off")),
        *(("2026-11-21", "2026-11-21"), ("10:30", "10:30"), ("010", "010"), ("0o17", "0o17")),
        *(("0x1F", "0x1F"), ("1_000", "1_000"), ("1e3", "1e3"), ("'12'", "12")),
        *(('"true"', "true"), ("12345678901234567890", 12345678901234567890)),
    ],
)
def test_unquoted_values_are_text_except_numbers_and_booleans(written: str, value: object) -> None:
    document = read(f"key: {written}\n")

    assert document.value == {"key": value}
    assert type(document.value["key"]) is type(value)


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_break_is_counted(line_break: str) -> None:
    document = read(f"a: 1{line_break}b: 2{line_break}")

    assert document.place(("b",)) == "fleet.yaml:2:4"
    assert document.line("fleet.yaml", 2) == "b: 2"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"a: caf\xe9\n", "fleet.yaml:1:7"),
        (b"fleet: x\n\x00", "fleet.yaml:2:1"),
        (b"\x7fELF\x02", "fleet.yaml:1:1"),
        ("a: \x1b[31m", "fleet.yaml:1:4"),
    ],
)
def test_binary_file_is_refused_with_place(text: str | bytes, place: str) -> None:
    document = read(text)

    assert document.value is None
    assert told(document) == [f"{place}: not-text"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "\ufeff"])
def test_empty_file_is_reported(text: str) -> None:
    document = read(text)

    assert document.value is None
    assert {found.rule for found in document.findings} <= {"empty-file", "wrong-type"}
    assert document.findings != ()


def thousands(count: int) -> str:
    """Return a list with so many thousand values in it, quickly read by its aliases."""
    return "[&thousand [" + ", ".join("x" * 999) + "]" + ", *thousand" * (count - 1) + "]"


ALIASES = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]
BOMB = ["a: &a [x, x, x, x, x, x, x, x, x]"]
BOMB += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise("abcdefghij")]


@pytest.mark.parametrize(
    "text",
    [
        *(opener * 100_000 for opener in ("[", "{a: ", "- ", "? ")),
        "\n".join(ALIASES),
        "\n".join(BOMB),
        f"a: {thousands(200)}",
    ],
    ids=["list", "mapping", "item", "key", "aliases", "bomb", "values"],
)
def test_too_complex_text_is_refused_before_construction(text: str) -> None:
    assert [found.rule for found in read(text).findings] == ["too-complex"]


def test_long_list_below_the_limit_is_read() -> None:
    assert told(read(f"a: {thousands(199)}")) == []


INCLUDE = "include: [d/*.yaml]\n"


@pytest.mark.slow
def test_values_of_all_files_are_limited_together() -> None:
    many = thousands(150)

    assert told(read(INCLUDE, f"a: {many}", f"b: {many}")) == ["d/two.yaml:1:1: too-complex"]


def test_size_limit_counts_all_files_together() -> None:
    document = read(INCLUDE, "#" * 4_000_000, "#" * 1_500_000)

    assert told(document) == ["d/two.yaml:1:1: unreadable-file"]


def test_include_patterns_are_relative_to_main_file() -> None:
    files = FakeFiles({"conf/fleet.yaml": "include: [d/*]\n", "conf/d/a": "pools: {a: 1}\n"})

    document = read_document("conf/fleet.yaml", files)

    assert document.findings == ()
    assert document.files == ("conf/fleet.yaml", "conf/d/a")


def test_located_finding_keeps_other_fields() -> None:
    document = read("pools: {a: 1}\n")
    found = document.locate(Finding("some-rule", "text", ("pools", "a"), hint="hint"))

    assert str(found.span) == "fleet.yaml:1:12"
    assert (found.rule, found.message, found.hint) == ("some-rule", "text", "hint")
    assert document.span(("pools",)).end_column == 14


def test_include_pattern_outside_project_is_reported() -> None:
    class Refusing(FakeFiles):
        def glob(self, pattern: str) -> tuple[str, ...]:
            raise FileUnreadable(f"{pattern}: leads out of the project")

    (finding,) = read_document("fleet.yaml", Refusing({"fleet.yaml": "include: [d/*]\n"})).findings

    assert finding.rule == "invalid-include"
    assert "d/*" in finding.message


def test_missing_line_is_not_shown() -> None:
    document = read("a: 1\n")

    places = (("fleet.yaml", 0), ("fleet.yaml", 3), ("other.yaml", 1))
    assert [document.line(*place) for place in places] == [None] * 3
