"""Run the policies of a fleet with pytest, and return their failures as findings.

Policies are programs with the rights of the process that calls `run_policies`. The policies of a
merge request run in a separate job (docs/explanation/threat-model.md).
"""

import glob
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from posixpath import basename, dirname, join
from threading import Thread
from typing import IO, NamedTuple

from pydantic import ValidationError

from fleet.model.policies import Failure, PolicyTest
from fleet.report.terminal import clean
from fleet.schema.findings import Finding, Span
from fleet.schema.source import Document

FOLDER = "policies"
"""Name of the folder with policies, next to fleet.yaml."""
SECONDS = 60
"""Time limit in seconds of one run of pytest; the policies of a folder take a few seconds."""
FACTS = "facts.json"
"""Name of the file with the JSON of each fixture, in the temporary folder of a run."""
RESULTS = "results.jsonl"
"""Name of the file with one line per test that pytest found, and one line per result."""
END = "end"
"""Last line in the file of results if pytest finished."""
_COMPLETE_EXIT_CODES = (0, 1, 5)
"""Exit codes of pytest after a complete run: all tests passed, some failed, no test was found."""
_MAX_OUTPUT = 16 * 1024
_OPTIONS = (
    *("-p", "fleet.apply.policy_plugin", "-p", "no:terminal", "-p", "no:cacheprovider"),
    *("-c", os.devnull, "--import-mode", "importlib"),
    *("--capture", "no", "--continue-on-collection-errors"),
)
"""Fixed options without output files, so that a policy has the same result on every host."""


class PolicyRun(NamedTuple):
    """The results of one run of policies, with their output."""

    tests: Sequence[PolicyTest]
    output: str
    """First characters that the policies printed."""
    is_whole: bool = True
    """True if pytest finished with a result for each test."""


def find_policies(folder: str) -> list[str]:
    """Return the policy files of a folder, without conftest.py and names that start with `_`."""
    names = sorted(glob.glob(join(glob.escape(folder), "*.py")))  # noqa: PTH207 - as written
    return [name for name in names if not basename(name).startswith(("_", "conftest.py"))]


def run_policies(files: Sequence[str], facts: Mapping[str, str | None]) -> PolicyRun:
    """Run pytest on these files; if it does not finish, run pytest on each file separately."""
    names = {os.path.abspath(name): name for name in files}  # noqa: PTH100 - links stay links
    unusable = {name: reason for name in names if (reason := _explain_unusable(name))}
    regular = [name for name in names if name not in unusable]
    with tempfile.TemporaryDirectory(prefix="fleet-policies-") as folder:
        Path(folder, FACTS).write_text(json.dumps(facts), encoding="utf-8")
        runs = [_run_pytest(regular, folder)] if regular else []
        if len(regular) > 1 and not runs[0].is_whole:
            # A file that exits or hangs must not hide the results of the others.
            runs = [_run_pytest([name], folder) for name in regular]
    others = (_broken(name, reason) for name, reason in unusable.items())
    found = [*(test for run in runs for test in run.tests), *others]
    tests = sorted((each.altered(file=names[each.file]) for each in found), key=attrgetter("file"))
    return PolicyRun(tests, "".join(run.output for run in runs))


def _explain_unusable(path: str) -> str:
    """Return why pytest cannot run a file; empty if it can."""
    if "[" in path:
        return (
            f"has a [ in its path {path}, which pytest does not accept; rename that folder or file"
        )
    return "" if Path(path).is_file() else "is no regular file"


def _run_pytest(files: Sequence[str], folder: str) -> PolicyRun:
    """Run pytest on files of one folder, given by absolute paths."""
    results = Path(folder, RESULTS)
    results.write_text("", encoding="utf-8")
    home = dirname(files[0])
    process = subprocess.Popen(  # noqa: S603 - pytest, with words of ours
        [
            *(sys.executable, "-P", "-m", "pytest", "--fleet-folder", folder, *_OPTIONS),
            # pytest compiles a module that has such a name again at each run.
            *("-o", f"python_files={shlex.quote(join(home, '*.py'))}"),
            # pytest names modules after their folder: a policy `json.py` is `policies.json`.
            *("--rootdir", dirname(home), "--confcutdir", home, *files),
        ],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    printed = bytearray()
    reader = Thread(target=_read, args=(process.stdout, printed), daemon=True)
    reader.start()
    try:
        status = process.wait(SECONDS)
        ending = f"ended its process {'by signal' if status < 0 else 'with status'} {abs(status)}"
    except subprocess.TimeoutExpired:
        ending = f"did not finish within {SECONDS} s and was stopped"
    finally:
        # Also kill child processes that the policies left.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    reader.join(1)
    tests: dict[tuple[str, str], PolicyTest] = {}
    lines = results.read_text(encoding="utf-8", errors="replace").removesuffix("\n").split("\n")
    for line in lines:
        with suppress(ValidationError):  # the end line, or a truncated line
            test = PolicyTest.model_validate_json(line)
            tests[test.file, test.name] = test
    is_whole = process.returncode in _COMPLETE_EXIT_CODES and lines[-1] == END
    is_whole &= all(map(_is_finished, tests.values()))
    reason = "" if is_whole else ending
    complete = [test for file in files for test in _complete(file, [*tests.values()], reason)]
    return PolicyRun(complete, printed.decode(errors="replace"), is_whole)


def _read(stream: IO[bytes], printed: bytearray) -> None:
    """Read a stream until its end, but keep only the first bytes in `printed`."""
    with stream:
        while data := os.read(stream.fileno(), _MAX_OUTPUT):
            printed += data[: _MAX_OUTPUT - len(printed)]


def _is_finished(test: PolicyTest) -> bool:
    return test.outcome != "broken" or bool(test.failures)


def _complete(file: str, tests: Sequence[PolicyTest], ending: str) -> Iterator[PolicyTest]:
    """Yield the results of the tests in one file. Unfinished tests count as broken."""
    own = [test for test in tests if test.file == file]
    reason = ending or "has no function test_…, so it checks nothing"
    if all(map(_is_finished, own)) and (ending or not own):
        yield _broken(file, reason)
    for test in own:
        if _is_finished(test):
            yield test
        else:
            yield test.altered(failures=(Failure(message=reason, line=test.line),))
            reason = "was not run: an earlier test of its file did not finish"


def _broken(file: str, message: str) -> PolicyTest:
    failures = (Failure(message=message),)
    return PolicyTest(file=file, name="import", outcome="broken", failures=failures)


def find_failures(tests: Sequence[PolicyTest], document: Document) -> Iterator[Finding]:
    """Yield a finding per failure of a policy, and per policy that did not finish.

    The position of a finding is the key of fleet.yaml that the policy names. If the policy names
    no key, the position is the line in the policy.
    """
    for test in tests:
        rule = "broken-policy" if test.outcome == "broken" else "failed-policy"
        for failure in test.failures:
            message = clean(f"{test.name}: {failure.message}")
            if failure.path:
                message += f" ({test.file}:{failure.line})"
                yield document.locate(Finding(rule, message, path=failure.path))
            else:
                span = Span(test.file, failure.line, 1, failure.line, 1)
                yield replace(Finding(rule, message, path=(test.name,)), span=span)
