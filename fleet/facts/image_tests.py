"""This module says what the tests of an image's version make of it."""

from datetime import datetime

from pydantic import Field

from fleet.facts.manifest import Test
from fleet.facts.values import Value
from fleet.facts.versions import State, Version

_JUDGED: tuple[State, ...] = ("built", "tested", "failed")
"""What is in use already changes its state by promotion and rollback alone."""


class VersionTests(Value):
    """A version of an image, what was tested of it now, and what state it is in since."""

    image: str
    version: str
    state: State
    tests: tuple[Test, ...]
    notes: tuple[str, ...] = Field((), description="What is no problem and yet to be known.")

    @property
    def passed(self) -> bool:
        """Say whether nothing is wrong with it."""
        return not any(test.problems for test in self.tests)


def after_tests(version: Version, tests: tuple[Test, ...], now: datetime) -> Version:
    """Return a version after these tests: tested, or failed with the first problem."""
    problems = [problem for test in tests for problem in test.problems]
    booted = [test for test in tests if test.kind == "boot" and not test.problems]
    provides = booted[-1].provides if booted else version.provides
    known = version.model_copy(update={"provides": provides})
    if version.state not in _JUDGED:
        return known
    state: State = "failed" if problems else "tested"
    since = version.since if version.state == state else now
    why = problems[0] if problems else ""
    judged = {"state": state, "since": since, "why": why, "by_rule": not problems}
    return known.model_copy(update=judged)
