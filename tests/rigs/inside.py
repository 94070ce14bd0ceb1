"""Run the program inside the process of the tests: a fork costs more than most commands."""

import functools
import io
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from tests.rigs.process import Completed


def run_inside(*args: str | Path, cwd: Path, env: Mapping[str, str]) -> Completed:
    """Run a command to its end and return what it said, never raising for its exit code."""
    from fleet.program import main  # most tests run no command

    arguments = [str(each) for each in args]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with chdir(cwd), _surroundings(env), redirect_stdout(out), redirect_stderr(err):
        code = _code_of(functools.partial(main, arguments))
    return Completed(["fleet", *arguments], code, _all_of(out), _all_of(err))


def _code_of(program: Callable[[], int]) -> int:
    try:
        return program()
    except SystemExit as ended:
        return int(ended.code or 0)


@contextmanager
def _surroundings(env: Mapping[str, str]) -> Iterator[None]:
    """Have this environment and an empty standard input."""
    before, stdin = dict(os.environ), sys.stdin
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        sys.stdin = nothing
        try:
            _replace_environment(env)
            yield
        finally:
            _replace_environment(before)
            sys.stdin = stdin


def _replace_environment(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    time.tzset()


def _all_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    written = stream.buffer
    assert isinstance(written, io.BytesIO)
    text = written.getvalue().decode("utf-8", errors="backslashreplace")
    return text.replace("\r\n", "\n").replace("\r", "\n")
