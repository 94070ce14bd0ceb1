"""Provide the fixtures of policies and record each test, as a plugin of pytest.

`fleet check` runs pytest with this plugin (`fleet.apply.policies`). Its import needs pytest.
"""

import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.apply.policies import END, FACTS, RESULTS
from fleet.explain.changes import ComparedPlan
from fleet.model.facts import World
from fleet.model.policies import Failure, Outcome, PolicyTest
from fleet.schema.model import Fleet

_MAX_MESSAGE = 500
_MAX_TEXT = 4000


class Require:
    """A function that records a failure and continues, so that a policy can report several."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.failures: list[Failure] = []

    def __call__(self, holds: object, message: str, *, at: Sequence[str | int] = ()) -> None:
        """Record a failure with this message unless `holds`. `at` is a key of fleet.yaml."""
        if holds:
            return
        frames = traceback.extract_stack(sys._getframe(1))  # noqa: SLF001 - the line that called
        line = next((f.lineno for f in reversed(frames) if f.filename == self._file), None)
        path = tuple(each if type(each) is int else str(each) for each in at)
        self.failures.append(Failure(message=_cut(message), line=line or 1, path=path))


_REQUIRE = pytest.StashKey[Require]()
_ERROR = pytest.StashKey[BaseException]()
_REPORTS = pytest.StashKey[list[pytest.TestReport]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the folder with the facts for policies, and with their results."""
    parser.addoption("--fleet-folder", type=Path, help="facts and results of `fleet check`")


def pytest_configure(config: pytest.Config) -> None:
    """Permit policies to import shared modules from their folder."""
    sys.path.append(str(Path(config.args[0]).parent))


# Each test gets new values, so that no test sees changes of another test.


@pytest.fixture(scope="session")
def fleet_facts(pytestconfig: pytest.Config) -> Mapping[str, str | None]:
    """Map each fixture to its JSON text; None if the fixture has no value."""
    text = (pytestconfig.getoption("--fleet-folder") / FACTS).read_text(encoding="utf-8")
    facts: dict[str, str | None] = json.loads(text)
    return facts


@pytest.fixture
def fleet(fleet_facts: Mapping[str, str | None]) -> Fleet:
    """Return the configuration of the merge request, including its templates and other files."""
    return Fleet.model_validate(json.loads(fleet_facts["fleet"] or ""))


@pytest.fixture
def base(fleet_facts: Mapping[str, str | None]) -> Fleet | None:
    """Return the configuration of the target branch; None if it is missing."""
    text = fleet_facts["base"]
    return None if text is None else Fleet.model_validate(json.loads(text))


@pytest.fixture
def plan(fleet_facts: Mapping[str, str | None]) -> ComparedPlan:
    """Return the plan. `plan.change` is the difference from the plan of the target branch."""
    return ComparedPlan.model_validate_json(fleet_facts["plan"] or "")


@pytest.fixture
def world(fleet_facts: Mapping[str, str | None]) -> World:
    """Return the world on which the plan is based."""
    return World.model_validate_json(fleet_facts["world"] or "")


@pytest.fixture
def require(request: pytest.FixtureRequest) -> Require:
    """Return the function with which a policy records failures."""
    objects = Require(str(request.path))
    request.node.stash[_REQUIRE] = objects
    return objects


def pytest_collection_finish(session: pytest.Session) -> None:
    """Record each test as broken. This result remains if pytest ends before the test."""
    for item in session.items:
        _record(item, _test(item, "broken"))


def pytest_exception_interact(
    node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]
) -> None:
    """Keep the first error of a test; record an error that importing a file raised."""
    if call.excinfo is None:
        return
    error = call.excinfo.value
    if isinstance(node, pytest.Item):
        node.stash.setdefault(_ERROR, error)
        return
    file, failure = str(node.path), _failure(error, str(node.path))
    text = _cut(str(error), _MAX_TEXT)
    test = PolicyTest(
        file=file,
        name="import",
        line=failure.line,
        outcome="broken",
        failures=(failure,),
        text=text,
    )
    _record(node, test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep the report of each phase (setup, call, teardown) of a test."""
    report = yield
    item.stash.setdefault(_REPORTS, []).append(report)  # type: ignore[arg-type]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the result of a test after its last phase."""
    ran = yield
    reports = item.stash.get(_REPORTS, [])
    failures = [*item.stash[_REQUIRE].failures] if _REQUIRE in item.stash else []
    outcome: Outcome = "failed" if failures else "passed"
    if error := item.stash.get(_ERROR, None):
        failures.append(_failure(error, str(item.path)))
        outcome = "failed" if _is_objection(error) else "broken"
    elif failed := [report for report in reports if report.failed]:
        # For example a strict xfail that passed: pytest has no error object.
        failures.append(Failure(message=_cut(failed[0].longreprtext), line=_line(item)))
        outcome = "failed"
    elif not failures and any(report.skipped for report in reports):
        outcome = "skipped"
    seconds = round(sum(report.duration for report in reports), 3)
    text = _cut("\n".join(r.longreprtext for r in reports if r.failed), _MAX_TEXT)
    test = _test(item, outcome)
    _record(item, test.altered(failures=tuple(failures), seconds=seconds, text=text))
    return ran


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Record that pytest finished."""
    _append(session.config, END)


def _test(item: pytest.Item, outcome: Outcome) -> PolicyTest:
    name = item.nodeid.partition("::")[2]
    return PolicyTest(file=str(item.path), name=name, line=_line(item), outcome=outcome)


def _record(node: pytest.Item | pytest.Collector, test: PolicyTest) -> None:
    _append(node.config, test.model_dump_json())


def _append(config: pytest.Config, line: str) -> None:
    with (config.getoption("--fleet-folder") / RESULTS).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _is_objection(error: BaseException) -> bool:
    """Return True if an error is a policy's verdict, such as by `assert`, not a defect."""
    return isinstance(error, AssertionError | pytest.fail.Exception)


def _failure(error: BaseException, file: str) -> Failure:
    """Return the first line of an error, and its last line number in this file (1 if unknown)."""
    if isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, SyntaxError) and error.filename == file:
        return Failure(
            message=_cut(f"{type(error).__name__}: {error.msg}"), line=error.lineno or 1
        )
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file and frame.lineno]
    first = next(iter(str(error).strip().splitlines()), "")
    if isinstance(error, pytest.FixtureLookupError):
        first = error.msg or f"there is no fixture {error.argname!r}"
    elif not (first and _is_objection(error)):
        first = f"{type(error).__name__}: {first}".removesuffix(": ")
    return Failure(message=_cut(first), line=lines[-1] if lines else 1)


def _line(item: pytest.Item) -> int:
    return (item.location[1] or 0) + 1


def _cut(text: str, most: int = _MAX_MESSAGE) -> str:
    # Half of a surrogate pair cannot be encoded as UTF-8.
    text = str(text)[: most + 1].encode(errors="replace").decode()
    return text if len(text) <= most else f"{text[:most]}…"
