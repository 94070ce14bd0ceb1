"""Run a fleet's own policies in a process that can do nothing but judge, and find what fails.

The process is started before anything of a merge request is read, because from then on no program
may be started (`fleet.state.confined`): it waits for its task, and has no secret, no network and
no time without end (`fleet.apply.policy_runner`).
"""

import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from posixpath import basename, join
from typing import NamedTuple

from fleet.apply.policy_runner import ABSENT, Means, Task
from fleet.errors import FleetError, add_extra
from fleet.model.policies import Failure, PolicyFile, PolicyTest
from fleet.report.terminal import clean
from fleet.schema.findings import Finding, Span
from fleet.schema.source import Document
from fleet.state.files import LocalFiles

FOLDER = "policies"
"""Where policies are, beside fleet.yaml."""
SECONDS = 60
_STARTING = 30
"""How long the process may take beside that: to start, and to end."""
_MOST_BYTES = 1_000_000
_FAILED, _BROKEN = "failed-policy", "broken-policy"


class Ran(NamedTuple):
    """What came of policies, and what kept them in."""

    files: tuple[PolicyFile, ...]
    means: Means


class PolicyProcess:
    """The process that runs policies; it has read nothing of a merge request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, files: Sequence[str], given: Mapping[str, str | None], seconds: float = SECONDS
    ) -> Ran:
        """Return what came of these files, by the names given here; raises FleetError."""
        names = {os.path.abspath(name): name for name in files}  # noqa: PTH100 - links stay links
        task = Task(files=tuple(names), given=given, seconds=seconds)
        try:
            out, err = self._process.communicate(task.model_dump_json(), seconds + _STARTING)
        except subprocess.TimeoutExpired:
            raise FleetError(f"policies did not end within {seconds + _STARTING:.0f} s") from None
        lines = out.splitlines()
        if lines == [json.dumps({"absent": ABSENT})]:
            raise FleetError(
                f"policies need {ABSENT}, which is not installed: {add_extra('policies')}"
            )
        if len(lines) != len(names) + 1 or not out.endswith("\n"):
            last = err.strip().splitlines()[-1:] or [f"status {self._process.returncode}"]
            raise FleetError(f"policies could not be run: {last[0]}")
        means, *results = lines
        found = [PolicyFile.model_validate_json(each) for each in results]
        named = [each.altered(file=names[each.file]) for each in found]
        return Ran(tuple(named), Means.model_validate_json(means))


@contextmanager
def policy_process() -> Iterator[PolicyProcess]:
    """Start the process that waits for policies, and end it with all that it started."""
    with tempfile.TemporaryDirectory(prefix="fleet-policies-") as home:
        # No variable of the job: not its tokens, and nothing that Python or pytest look at.
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": home,
            "LANG": "C.UTF-8",
        }
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "fleet.apply.policy_runner"],
            cwd=home,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        with process:
            try:
                yield PolicyProcess(process)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def find_policies(folder: str) -> dict[str, PolicyFile | None]:
    """Return the policies of a folder; those that cannot be read with what that comes to.

    Files that begin with `_`, and conftest.py, are none.
    """
    names = sorted(glob.glob(join(glob.escape(folder), "*.py")))  # noqa: PTH207 - as written
    return {name: _unreadable(name, folder) for name in names if _is_policy(basename(name))}


def _is_policy(name: str) -> bool:
    return not name.startswith("_") and name != "conftest.py"


def _unreadable(name: str, folder: str) -> PolicyFile | None:
    """Return what comes of a pipe, a device, a link that leads elsewhere; None of a file."""
    try:
        LocalFiles(within=folder).read(name, _MOST_BYTES)
    except FleetError as error:
        failure = Failure(message=str(error).removeprefix(f"{name}: "))
        test = PolicyTest(name="import", outcome="broken", failures=(failure,))
        return PolicyFile(file=name, tests=(test,))
    return None


def find_failures(files: Sequence[PolicyFile], document: Document) -> Iterator[Finding]:
    """Yield what policies object to, and which of them did not come to an end.

    An objection that names a key of fleet.yaml stands there, any other at its line of the policy.
    """
    for file in files:
        for test in file.tests:
            rule = _BROKEN if test.outcome == "broken" else _FAILED
            for failure in test.failures:
                message = clean(f"{test.name}: {failure.message}")
                if failure.path:
                    message += f" ({file.file}:{failure.line})"
                    yield document.locate(Finding(rule, message, path=failure.path))
                else:
                    yield _at(file.file, failure.line, Finding(rule, message, path=(test.name,)))
            if test.more:
                message = f"{clean(test.name)}: {test.more} more objections, which are not shown"
                yield _at(file.file, test.line, Finding(rule, message, path=(test.name,)))


def _at(file: str, line: int, finding: Finding) -> Finding:
    return replace(finding, span=Span(file, line, 1, line, 1))
