"""Findings as text, JSON and a GitLab report: the very characters, and nothing that shifts."""

import json
import re

import pytest

from fleet.report.findings import to_gitlab, to_json, to_summary, to_text
from fleet.schema.findings import Finding
from fleet.schema.source import Document, read_document
from tests.builders.sentences import tells
from tests.fakes.files import FakeFiles


def written(text: str) -> Document:
    return read_document("fleet.yaml", FakeFiles({"fleet.yaml": text}))


def rendered(text: str, finding: Finding) -> list[str]:
    document = written(text)
    return to_text([document.locate(finding)], document).splitlines()


def test_finding_shows_line_caret_and_hint() -> None:
    finding = Finding("some-rule", "this is wrong", ("b",), hint="do that")

    lines = rendered("a: 1\nb: {kind: nope}\n", finding)

    assert lines == [
        "fleet.yaml:2:4: error[some-rule] this is wrong",
        "  |",
        "2 | b: {kind: nope}",
        "  |    ^^^^^^^^^^^^",
        "  = hint: do that",
    ]


def test_warning_is_marked_and_may_have_no_hint() -> None:
    lines = rendered("a: 1\n", Finding("some-rule", "odd", ("a",), severity="warning", at="key"))

    assert lines == ["fleet.yaml:1:1: warning[some-rule] odd", "  |", "1 | a: 1", "  | ^"]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_finding_fits_a_terminal_with_carets_at_its_place(width: int) -> None:
    long = "x" * 200
    document = written(f"a: [{long}, wrong, {long}]\n")
    finding = Finding("some-rule", "this is wrong " * 20, ("a", 1), hint="do that " * 20)

    lines = to_text([document.locate(finding)], document, width=width).splitlines()

    assert max(map(len, lines)) <= width
    (carets,) = (n for n, each in enumerate(lines) if "^" in each)
    begin = lines[carets].index("^")
    assert lines[carets - 1][begin : begin + 5] == "wrong"


@pytest.mark.parametrize(
    ("text", "shown", "caret"),
    [
        ("a: [\t1, xyz]", "1 | a: [    1, xyz]", "  |            ^^^"),
        ("a: [日, xyz]", "1 | a: [日, xyz]", "  |         ^^^"),
        ("a: [e\u0301, xyz]", "1 | a: [e\u0301, xyz]", "  |        ^^^"),
    ],
)
def test_tabs_and_wide_characters_do_not_shift_the_caret(
    text: str, shown: str, caret: str
) -> None:
    lines = rendered(text, Finding("some-rule", "wrong", ("a", 1)))

    assert lines[2:] == [shown, caret]


def test_long_line_is_cut_around_the_caret() -> None:
    text = f"a: [{'x' * 500}, here, {'y' * 500}]\n"

    lines = rendered(text, Finding("some-rule", "wrong", ("a", 1)))

    assert len(lines[2]) < 160
    begin = lines[3].index("^")
    assert lines[2][begin : begin + 4] == "here"
    assert lines[2].endswith("…")


def test_multiline_value_is_underlined_on_first_line() -> None:
    lines = rendered("a: {b: 1,\n  c: 2}\n", Finding("some-rule", "wrong", ("a",)))

    assert lines[2:] == ["1 | a: {b: 1,", "  |    ^^^^^^"]


@pytest.mark.parametrize(
    ("severities", "said"),
    [
        ([], ("valid",)),
        (["warning"], ("valid", "1 warning")),
        (["error", "error", "warning"], ("invalid", "2 errors", "1 warning")),
    ],
)
def test_summary_counts_findings(severities: list[str], said: tuple[str, ...]) -> None:
    findings = [
        Finding("r", "m", severity="error" if severity == "error" else "warning")
        for severity in severities
    ]

    summary = to_summary(findings, written("a: 1\n"))

    assert tells(summary, "fleet.yaml", *said)
    assert len(re.findall(r"\d+", summary)) == len(said) - 1


def test_summary_has_number_of_read_files() -> None:
    files = FakeFiles({"fleet.yaml": "include: [d/*]\n", "d/a": "", "d/b": "pools: {}\n"})

    summary = to_summary([], read_document("fleet.yaml", files))

    assert tells(summary, "fleet.yaml", "2", "valid")


def test_json_has_all_fields_of_a_finding() -> None:
    finding = written("a: 1\n").locate(Finding("some-rule", "wrong", ("a",), hint="do that"))

    assert json.loads(to_json([finding])) == {
        "format": "fleet-findings-1",
        "findings": [
            {
                "rule": "some-rule",
                "message": "wrong",
                "path": ["a"],
                "severity": "error",
                "at": "value",
                "hint": "do that",
                "span": {
                    "file": "fleet.yaml",
                    "line": 1,
                    "column": 4,
                    "end_line": 1,
                    "end_column": 5,
                },
                "part": None,
            }
        ],
    }


def test_fingerprint_is_stable_when_lines_move() -> None:
    finding = Finding("some-rule", "wrong", ("a",))
    before, after = written("a: 1\n"), written("b: 2\n\na: 1\n")

    prints = [
        json.loads(to_gitlab([document.locate(finding)]))[0]["fingerprint"]
        for document in (before, after)
    ]

    assert prints[0] == prints[1]


def test_two_findings_of_one_kind_have_two_fingerprints() -> None:
    findings = [Finding("some-rule", "wrong"), Finding("some-rule", "wrong")]

    prints = {issue["fingerprint"] for issue in json.loads(to_gitlab(findings))}

    assert len(prints) == 2
