"""Test mutants: collect the tests once, and fork a process for each mutant.

Run by tools/mutants.py, in the copy of a target: python tools/mutant_trial.py JOBS TEST ... mutmut
itself would collect the tests for each mutant, which takes longer than most mutants need. It
generates the mutants and stores the results. A killed mutant is not tested again until it changes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import mkdtemp

import pytest
from _pytest.runner import runtestprotocol
from mutmut.__main__ import create_mutants
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, walk_mutatable_files
from mutmut.utils.format_utils import mangled_name_from_mutant_name

OPTIONS = ("--rootdir=.", "--tb=native", "-q", "-n0", "-pno:randomly", "-pno:cacheprovider")
FRESH = (sys.executable, "-m", "pytest", "-x")
# The words of mutmut for what became of a mutant.
SURVIVED, KILLED, NO_TESTS, TIMEOUT, DIED = 0, 1, 33, 36, -9
LIMITS = (-signal.SIGALRM, -signal.SIGPROF)
NOTICED_BY = "noticed-by"
MEMORY = 8 * 2**30
EACH = 50


class Trial:
    """Plugin of pytest that tests mutants instead of running all tests."""

    def __init__(
        self, files: Sequence[SourceFileMutationData], tests: Sequence[str], jobs: int
    ) -> None:
        self._file_of = {name: file for file in files for name in file.exit_code_by_key}
        self._tests = tests
        self._jobs = jobs
        self._seconds: dict[str, float] = {}
        self._met: dict[str, list[str]] = defaultdict(list)
        self._noticed_by: dict[str, set[str]] = defaultdict(set)
        self._running: dict[int, tuple[str, Path]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Let Hypothesis stop at the first failure, because the smallest example is not needed."""
        from hypothesis import Phase, settings  # pytest has to come first, or warns

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), phases=phases, database=None)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Test each mutant that no earlier run has killed."""
        self._items = {item.nodeid: item for item in session.items}
        self._at_import = _functions_called()
        self._run_unchanged()
        tried = (None, SURVIVED, NO_TESTS)
        names = [n for n, file in self._file_of.items() if file.exit_code_by_key[n] in tried]
        names.sort(key=lambda name: sum(self._seconds[test] for test in self._tests_of(name)))
        print(f"{len(self._items)} tests, {len(names)} mutants of {len(self._file_of)} to try")
        begun = time.monotonic()
        for count, name in enumerate(names):
            if len(self._running) == self._jobs:
                self._wait()
            self._fork(name, partial(self._notices, name))
            if count % EACH == 0:
                print(f"{count} tried in {time.monotonic() - begun:.0f} s", flush=True)
        while self._running:
            self._wait()
        return True

    def _run_unchanged(self) -> None:
        """Run all tests on unchanged code; record the called functions and duration of each."""
        place = Path("unchanged.json").absolute()

        def run(_: Path) -> int:
            calls = {}
            for test, following in _with_next(list(self._items)):
                begun = time.monotonic()
                if self._fails(test, following):
                    return KILLED
                calls[test] = (time.monotonic() - begun, sorted(_functions_called()))
            place.write_text(json.dumps(calls), encoding="utf-8")
            return SURVIVED

        self._fork("stats", run)
        if self._wait() != SURVIVED:
            pytest.exit("a test fails on unchanged code", returncode=1)
        for test, (seconds, functions) in json.loads(place.read_text(encoding="utf-8")).items():
            self._seconds[test] = seconds
            for function in functions:
                self._met[function].append(test)

    def _tests_of(self, name: str) -> Sequence[str]:
        return self._met[mangled_name_from_mutant_name(name)]

    def _notices(self, name: str, folder: Path) -> int:
        """Run the tests that call the changed function until one fails.

        Tests that killed another mutant of the same function are first, then the fastest tests.
        """
        before = self._noticed_by[mangled_name_from_mutant_name(name)]
        tests = sorted(self._tests_of(name), key=lambda t: (t not in before, self._seconds[t]))
        for test, following in _with_next(tests):
            _allow(self._seconds[test])
            if self._fails(test, following):
                (folder / NOTICED_BY).write_text(test, encoding="utf-8")
                return KILLED
        if mangled_name_from_mutant_name(name) in self._at_import:
            _allow(sum(self._seconds.values()))
            os.execv(FRESH[0], [*FRESH, *OPTIONS, *self._tests])  # noqa: S606 - no shell needed
        return SURVIVED if tests else NO_TESTS

    def _fails(self, test: str, following: str | None) -> bool:
        next_item = self._items[following] if following else None
        reports = runtestprotocol(self._items[test], log=False, nextitem=next_item)
        for report in reports:
            if report.failed:
                print(report.longreprtext, flush=True)
        return any(report.failed for report in reports)

    def _fork(self, name: str, work: Callable[[Path], int]) -> None:
        """Run `work` in a separate process with a separate temporary folder."""
        folder = Path(mkdtemp(prefix="mutant-", dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")))
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            self._running[pid] = (name, folder)
            return
        code = os.EX_SOFTWARE  # a mistake of ours, which is no verdict
        try:
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            set_mutant_under_test(name)
            if name in self._file_of:
                silence = os.open(os.devnull, os.O_WRONLY)
                os.dup2(silence, 1)
                os.dup2(silence, 2)
            code = work(folder)
        except MemoryError:
            code = KILLED
        finally:
            os._exit(code)

    def _wait(self) -> int:
        """Wait for one process and store its result; a mutant that hangs or crashes is killed."""
        pid, status = os.wait()
        name, folder = self._running.pop(pid)
        if (folder / NOTICED_BY).exists():
            function = mangled_name_from_mutant_name(name)
            self._noticed_by[function].add((folder / NOTICED_BY).read_text(encoding="utf-8"))
        shutil.rmtree(folder, ignore_errors=True)
        code = os.waitstatus_to_exitcode(status)
        if code == os.EX_SOFTWARE:
            pytest.exit(f"could not try {name}", returncode=1)
        if code < 0:
            code = TIMEOUT if code in LIMITS else DIED
        elif code not in (SURVIVED, NO_TESTS):
            code = KILLED
        if name in self._file_of:
            self._file_of[name].exit_code_by_key[name] = code
            self._file_of[name].save()
        return code


def main(jobs: str, *tests: str) -> int:
    """Generate the mutants of the copy in the current folder, and test them."""
    set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir(exist_ok=True)
    with redirect_stdout(StringIO()):  # a line for each file
        copy_src_dir()
        copy_also_copy_files()
        create_mutants(int(jobs))
    files = [SourceFileMutationData(path=path) for path in walk_mutatable_files()]
    for file in files:
        file.load()
        file.meta_path = file.meta_path.absolute()
    os.chdir("mutants")
    set_mutant_under_test("stats")
    return pytest.main([*OPTIONS, "-s", *tests], plugins=[Trial(files, tests, int(jobs))])


def _functions_called() -> set[str]:
    """Return the functions that were called since the last call of this function."""
    called = set(state()._stats)  # noqa: SLF001 - mutmut counts for itself only
    state()._stats.clear()  # noqa: SLF001
    return called


def _with_next(tests: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each test with the next test, by which pytest knows which fixtures to keep."""
    return zip(tests, [*tests[1:], None], strict=False)  # of none there is no next one


def _allow(seconds: float) -> None:
    """Kill this process after about ten times the usual processor time of the test."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, 5 + 10 * seconds)
    signal.setitimer(signal.ITIMER_REAL, 60 + 60 * seconds)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
