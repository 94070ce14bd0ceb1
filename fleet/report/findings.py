"""Render findings as text that quotes fleet.yaml or JSON, and policy tests; both for forges."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from operator import attrgetter
from typing import get_args
from xml.etree import ElementTree as ET

from fleet.model.policies import Outcome, PolicyTest
from fleet.report.document import Style, StyledText, line
from fleet.report.terminal import MIN_WIDTH, WIDTH, clean, document_to_text, width_of
from fleet.schema.findings import Finding, Report
from fleet.schema.findings import Span as Place
from fleet.schema.source import Document
from fleet.schema.units import write_count as many

_EXCERPT_MARGIN = 10
"""Columns beside an excerpt, for the line number and for cuts."""
_STYLES = {"error": Style.RED, "warning": Style.YELLOW}


def to_text(
    findings: Iterable[Finding],
    document: Document,
    *,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Return the findings as text that quotes the lines of fleet.yaml.

    `width` is the number of columns of the terminal.
    """
    width = max(MIN_WIDTH, width or WIDTH)
    return "\n".join(_one(each, document, width, colour=colour) for each in findings)


def to_summary(findings: Sequence[Finding], document: Document) -> str:
    """Return one line: the files, whether they are valid, and counts of errors and warnings."""
    errors = sum(finding.severity == "error" for finding in findings)
    counts = [many(errors, "error"), many(len(findings) - errors, "warning")]
    files = clean(document.name)
    if len(document.files) > 1:
        files += f" and {many(len(document.files) - 1, 'included file')}"
    verdict = "invalid" if errors else "valid"
    found = ", ".join(count for count in counts if not count.startswith("0 "))
    return f"{files}: {verdict}" + (f" ({found})" if found else "")


def to_json(findings: Iterable[Finding]) -> str:
    """Return findings as one JSON object with a published schema."""
    report = asdict(Report(tuple(findings)))
    form = {"format": report.pop("format")}
    return json.dumps(form | report, indent=2, ensure_ascii=False)


def to_gitlab(findings: Iterable[Finding]) -> str:
    """Return findings as a GitLab code quality report.

    A fingerprint is a hash of rule, file and path, and of the number of equal earlier findings. It
    does not depend on the line number.
    """
    issues, seen = [], Counter[tuple[object, ...]]()
    for finding in findings:
        place = _place(finding)
        kind = (finding.rule, place.file, *finding.path)
        fingerprint = hashlib.sha256(json.dumps([*kind, seen[kind]]).encode()).hexdigest()[:32]
        seen[kind] += 1
        issues.append(
            {
                "description": finding.message + (f" ({finding.hint})" if finding.hint else ""),
                "check_name": finding.rule,
                "fingerprint": fingerprint,
                "severity": "major" if finding.severity == "error" else "minor",
                "location": {
                    "path": place.file.removeprefix("./"),
                    "lines": {"begin": place.line},
                },
            }
        )
    return json.dumps(issues, indent=2, ensure_ascii=False)


def _one(finding: Finding, document: Document, width: int, *, colour: bool) -> str:
    place = _place(finding)
    word = StyledText(f"{finding.severity}[{finding.rule}]", _STYLES[finding.severity])
    said = line(f"{place}: ", word, f" {finding.message}")
    text = document_to_text([said], colour=colour, width=width)
    written = document.line(place.file, place.line)
    margin = " " * len(str(place.line))
    if written is not None and written.strip():
        shown, caret = _excerpt(written, place, width - _EXCERPT_MARGIN)
        text += f"{margin} |\n{place.line} | {shown}\n{margin} | {caret}\n"
    if finding.hint:
        hint = line(f"{margin} = hint: {finding.hint}")
        text += document_to_text([hint], colour=colour, width=width)
    return text


def _excerpt(text: str, span: Place, width: int) -> tuple[str, str]:
    """Return a source line and the carets below it, both cut to a width."""
    begin = span.column - 1
    until = span.end_column - 1 if span.end_line == span.line else len(text.rstrip())
    until = max(begin + 1, until)
    cut = max(0, min(begin - width // 2, len(text) - width))
    end = min(len(text), cut + width)
    before, marked, after = text[cut:begin], text[begin:until], text[until:end]
    marked = marked[: max(1, end - begin)]
    left, right = ("…" if cut else ""), ("…" if end < len(text) else "")
    shown = left + _flat(before) + _flat(marked) + _flat(after) + right
    caret = " " * width_of(left + _flat(before)) + "^" * max(1, width_of(_flat(marked)))
    return shown.rstrip(), caret


def _flat(text: str) -> str:
    return clean(text.replace("\t", "    "))


def _place(finding: Finding) -> Place:
    return finding.span or Place("fleet.yaml")


_JUNIT_KINDS = {"failed": "failure", "broken": "error", "skipped": "skipped"}


def policies_to_summary(files: Sequence[str], tests: Sequence[PolicyTest]) -> str:
    """Return one line with the number of files, the number of tests, and the tests per outcome."""
    outcomes = Counter(test.outcome for test in tests)
    counts = [(outcomes[each], each) for each in get_args(Outcome)]
    shown = ", ".join(f"{count} {each}" for count, each in counts if count) or "0 passed"
    return f"{many(len(files), 'file')} of policies, {many(len(tests), 'test')}: {shown}"


def policies_to_junit(tests: Sequence[PolicyTest]) -> str:
    """Return a JUnit report with a suite per file and a case per test, as XML text."""
    root = ET.Element("testsuites", name="fleet check")
    for file, group in groupby(tests, key=attrgetter("file")):
        own = [*group]
        outcomes = [test.outcome for test in own]
        figures = {
            "name": clean(file),
            "tests": str(len(own)),
            "failures": str(outcomes.count("failed")),
            "errors": str(outcomes.count("broken")),
            "skipped": str(outcomes.count("skipped")),
            "time": f"{sum(test.seconds for test in own):.3f}",
        }
        suite = ET.SubElement(root, "testsuite", figures)
        for test in own:
            case = ET.SubElement(
                suite,
                "testcase",
                {
                    "classname": clean(test.file.removesuffix(".py").replace("/", ".")),
                    "name": clean(test.name),
                    "file": clean(test.file),
                    "line": str(test.line),
                    "time": f"{test.seconds:.3f}",
                },
            )
            if test.outcome in _JUNIT_KINDS:
                messages = [each.message for each in test.failures]
                shown = ET.SubElement(
                    case, _JUNIT_KINDS[test.outcome], message=clean("; ".join(messages))
                )
                lines = (test.text or "\n".join(messages)).splitlines()
                shown.text = "\n".join(map(clean, lines)) or None
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
