"""Render the results of a fleet's policy tests as one line, or as JUnit XML for forges."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import get_args
from xml.etree import ElementTree as ET

from fleet.model.policies import Outcome, PolicyTest
from fleet.report.terminal import clean
from fleet.schema.units import write_count as many

_KINDS = {"failed": "failure", "broken": "error", "skipped": "skipped"}


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
            if test.outcome in _KINDS:
                messages = [each.message for each in test.failures]
                shown = ET.SubElement(
                    case, _KINDS[test.outcome], message=clean("; ".join(messages))
                )
                lines = (test.text or "\n".join(messages)).splitlines()
                shown.text = "\n".join(map(clean, lines)) or None
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
