"""Render what came of a fleet's own policies: in a line, and as JUnit, which forges show."""

from collections.abc import Iterable, Iterator, Sequence
from xml.etree import ElementTree as ET

from fleet.model.policies import PolicyFile, PolicyTest
from fleet.report.terminal import clean
from fleet.schema.units import write_count as many

_KINDS = {"failed": "failure", "broken": "error", "skipped": "skipped"}
_MOST_LINES, _MOST_COLUMNS = 10, 200


def policies_to_summary(files: Sequence[PolicyFile]) -> str:
    """Return one line: how many files and tests, and what came of them."""
    tests = [test for file in files for test in file.tests]
    counts = [
        f"{sum(test.outcome == outcome for test in tests)} {outcome}"
        for outcome in ("passed", "failed", "broken", "skipped")
    ]
    shown = ", ".join(each for each in counts if not each.startswith("0 ")) or "0 passed"
    return f"{many(len(files), 'file')} of policies, {many(len(tests), 'test')}: {shown}"


def policies_to_output(files: Iterable[PolicyFile]) -> Iterator[str]:
    """Yield the first lines of what each policy printed, and how much more there was."""
    for file in files:
        lines = file.output.splitlines()
        yield from (f"{file.file}: {line[:_MOST_COLUMNS]}" for line in lines[:_MOST_LINES])
        shown = sum(len(line[:_MOST_COLUMNS]) + 1 for line in lines[:_MOST_LINES])
        hidden = max(0, len(file.output) - shown) + file.dropped
        if hidden:
            yield f"{file.file}: … and {many(hidden, 'more byte')} that it printed"


def policies_to_junit(files: Iterable[PolicyFile]) -> str:
    """Return a JUnit report: a suite for each file, a case for each test."""
    root = ET.Element("testsuites", name="fleet check")
    for file in files:
        suite = ET.SubElement(root, "testsuite", _figures(file))
        for test in file.tests:
            _add(suite, file.file, test)
        if file.output:
            ET.SubElement(suite, "system-out").text = _lines(file.output) + (
                f"\n… and {file.dropped:,} more bytes" if file.dropped else ""
            )
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _figures(file: PolicyFile) -> dict[str, str]:
    outcomes = [test.outcome for test in file.tests]
    return {
        "name": clean(file.file),
        "tests": str(len(outcomes)),
        "failures": str(outcomes.count("failed")),
        "errors": str(outcomes.count("broken")),
        "skipped": str(outcomes.count("skipped")),
        "time": f"{sum(test.seconds for test in file.tests):.3f}",
    }


def _add(suite: ET.Element, file: str, test: PolicyTest) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        {
            "classname": clean(file.removesuffix(".py").replace("/", ".")),
            "name": clean(test.name),
            "file": clean(file),
            "line": str(test.line),
            "time": f"{test.seconds:.3f}",
        },
    )
    if test.outcome in _KINDS:
        messages = [each.message for each in test.failures]
        told = ET.SubElement(case, _KINDS[test.outcome], message=clean("; ".join(messages)))
        told.text = _lines(test.text or "\n".join(messages)) or None


def _lines(text: str) -> str:
    """Return text with its line breaks, every other control character written out."""
    return "\n".join(map(clean, text.splitlines()))
