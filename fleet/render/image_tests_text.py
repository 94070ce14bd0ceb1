"""This module renders what the tests of an image found."""

from collections.abc import Iterator

from fleet.facts.image_tests import VersionTests
from fleet.facts.manifest import Test
from fleet.render.terminal import Line, Span, Style, line, lines_to_text, title
from fleet.render.words import many

_DID = {"offline": "looked into", "boot": "booted"}


def tested_to_text(tested: VersionTests, *, colour: bool) -> str:
    """Return what each test found, and what state the version is in."""
    head = (*title(f"image {tested.image} {tested.version}"), Span(f": {tested.state}"))
    lines = [head, *(each for test in tested.tests for each in _lines(test))]
    lines += [line(f"note: {note}") for note in tested.notes]
    return lines_to_text(lines, colour=colour)


def _lines(test: Test) -> Iterator[Line]:
    found = many(len(test.problems), "problem") if test.problems else "no problem"
    style = Style.RED if test.problems else Style.GREEN
    tags = f"; its worker provides {many(len(test.provides), 'tag')}" if test.provides else ""
    yield line(f"{_DID[test.kind]} in {test.seconds:.0f} s: ", Span(found, style), tags)
    yield from (line(f"  - {problem}") for problem in test.problems)
