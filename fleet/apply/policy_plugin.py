"""The fixtures of policies, and what pytest is asked to tell of them.

It runs inside the process that runs policies (`fleet.apply.policy_runner`); importing it needs
pytest.
"""

import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import Confined
from fleet.explain.changes import ComparedPlan
from fleet.model.facts import World
from fleet.model.policies import Failure, Outcome, PolicyTest
from fleet.schema.model import Fleet

_OFF = "terminal", "cacheprovider", "faulthandler", "junitxml", "stepwise", "pastebin", "logging"
"""Plugins of pytest that write files, or to a terminal."""
_MOST_FAILURES = 50
_MOST_MESSAGE, _MOST_TEXT = 500, 4000


class Require:
    """Objects to something and goes on: one policy may object to many things."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.failures: list[Failure] = []
        self.more = 0

    def __call__(self, holds: object, message: str, *, at: Sequence[str | int] = ()) -> None:
        """Object with this message where it does not hold; `at` is the key of fleet.yaml."""
        if holds:
            return
        if len(self.failures) >= _MOST_FAILURES:
            self.more += 1
            return
        frames = traceback.extract_stack(sys._getframe(1))  # noqa: SLF001 - the line that called
        line = next((f.lineno for f in reversed(frames) if f.filename == self._file), None)
        path = tuple(each if type(each) is int else str(each)[:200] for each in at)[:20]
        self.failures.append(Failure(message=_cut(message), line=line or 1, path=path))


class Policies:
    """A plugin of pytest for one file: gives it its fixtures, tells what came of each test."""

    def __init__(
        self,
        file: str,
        given: Mapping[str, str | None],
        *,
        tell: Callable[[str, object], None],
        refused: Sequence[str],
    ) -> None:
        self._file = file
        self._given = given
        self._tell = tell
        self._refused = refused
        self._tried: list[str] = []
        self._require = Require(file)
        self._failure: Failure | None = None
        self._outcome: Outcome = "passed"

    # A value of its own for each test: what one does to it, the next does not see.

    @pytest.fixture
    def fleet(self) -> Fleet:
        """Return the configuration of the merge request, with its templates and included files."""
        return Fleet.model_validate(json.loads(self._given["fleet"] or ""))

    @pytest.fixture
    def base(self) -> Fleet | None:
        """Return the configuration of the target branch; None without one."""
        text = self._given["base"]
        return None if text is None else Fleet.model_validate(json.loads(text))

    @pytest.fixture
    def plan(self) -> ComparedPlan:
        """Return the plan; `plan.change` is the difference from the plan of the base."""
        return ComparedPlan.model_validate_json(self._given["plan"] or "")

    @pytest.fixture
    def world(self) -> World:
        """Return the observation that the plan was made from."""
        return World.model_validate_json(self._given["world"] or "")

    @pytest.fixture
    def require(self) -> Require:
        """Return what objects to something and goes on."""
        return self._require

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Tell which tests there are, so that none is forgotten should this process end."""
        if self._refused:
            failure = Failure(message=f"{_cut(self._refused[0])} (and went on)")
            test = PolicyTest(name="import", outcome="broken", failures=(failure,))
            self._tell("test", test.model_dump(mode="json"))
        self._tell("tests", [[_name(item), _line(item)] for item in session.items])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Tell which test begins."""
        self._require = Require(self._file)
        self._failure, self._outcome, self._tried = None, "passed", []
        self._tell("begins", _last(nodeid))

    def pytest_exception_interact(
        self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]
    ) -> None:
        """Note the first error of a test; tell one that kept the file from being read."""
        if call.excinfo is None:
            return
        error = call.excinfo.value
        failure = Failure(message=_message(error), line=_line_of(error, self._file))
        if not isinstance(node, pytest.Item):
            test = PolicyTest(
                name="import",
                line=failure.line,
                outcome="broken",
                failures=(failure,),
                text=_cut(str(error), _MOST_TEXT),
            )
            self._tell("test", test.model_dump(mode="json"))
        elif self._failure is None:
            self._failure = failure
            self._outcome = "failed" if _is_objection(error) else "broken"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Tell what came of a test when all of it is over."""
        self._reports: list[pytest.TestReport] = []
        result = yield
        self._tell("test", self._result(item).model_dump(mode="json"))
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        """Note what a test tries while it is prepared, runs, and is tidied up."""
        # Between these, pytest itself looks for sources that it could show.
        before = len(self._refused)
        try:
            return (yield)
        finally:
            self._tried += self._refused[before:]

    pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what pytest says of the parts of a test."""
        self._reports.append(report)

    def _result(self, item: pytest.Item) -> PolicyTest:
        tried = self._tried
        failures = [*self._require.failures, *filter(None, [self._failure])]
        outcome = self._outcome
        if outcome == "passed" and self._require.failures:
            outcome = "failed"
        if tried and not any("refused: " in each.message for each in failures):
            failures.append(Failure(message=f"{_cut(tried[0])} (and went on)", line=_line(item)))
        if tried:
            outcome = "broken"
        if outcome == "passed" and any(report.skipped for report in self._reports):
            outcome = "skipped"
        if outcome == "passed" and (bad := [r for r in self._reports if r.failed]):
            # A strict xfail that passed, and the like: pytest has no error to show.
            outcome = "failed"
            failures.append(Failure(message=_cut(bad[0].longreprtext), line=_line(item)))
        return PolicyTest(
            name=_name(item),
            line=_line(item),
            outcome=outcome,
            seconds=round(sum(report.duration for report in self._reports), 3),
            failures=tuple(failures),
            more=self._require.more,
            text=_cut("\n".join(r.longreprtext for r in self._reports if r.failed), _MOST_TEXT),
        )


def _is_objection(error: BaseException) -> bool:
    """Say whether a policy objects, as with `assert`; any other error is one of its own."""
    return isinstance(error, AssertionError | pytest.fail.Exception)


def _message(error: BaseException) -> str:
    """Return the first line of an error; what is no objection says what kind it is."""
    told = getattr(error, "msg", None) if isinstance(error, SyntaxError) else None
    first = next(iter(str(told or error).strip().splitlines()), "")
    if isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
        return _message(error.__cause__)
    if first and (_is_objection(error) or isinstance(error, Confined)):
        return _cut(first)
    if isinstance(error, pytest.FixtureLookupError):
        return _cut(str(error.msg or f"there is no fixture {error.argname!r}"))
    return _cut(f"{type(error).__name__}: {first}" if first else type(error).__name__)


def _line_of(error: BaseException, file: str) -> int:
    """Return the last line of this file that an error passed; 1 where it passed none."""
    cause = error.__cause__
    if isinstance(error, pytest.Collector.CollectError) and cause is not None:
        return _line_of(cause, file)
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file and frame.lineno]
    return lines[-1] if lines else 1


def _line(item: pytest.Item) -> int:
    return (item.location[1] or 0) + 1


def _name(item: pytest.Item) -> str:
    return _last(item.nodeid)


def _last(nodeid: str) -> str:
    return _cut(nodeid.partition("::")[2])


def _cut(text: str, most: int = _MOST_MESSAGE) -> str:
    # Half a pair of a surrogate is no text that could be told.
    text = str(text)[: most + 1].encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[:most]}…"


def run(file: Path, policies: Policies) -> int:
    """Run the tests of one file, with no configuration and no plugin but these.

    Returns the exit code of pytest.
    """
    folder = str(file.parent)
    sys.path.append(folder)  # what several policies share, in a file of its own
    return pytest.main(
        [
            str(file),
            *(word for name in _OFF for word in ("-p", f"no:{name}")),
            *("-c", "/dev/null", "--rootdir", folder, "--confcutdir", folder),
            *("--import-mode", "importlib", "--capture", "no", "-o", "python_files=*.py"),
        ],
        plugins=[policies],
    )
