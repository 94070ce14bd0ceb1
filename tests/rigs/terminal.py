"""Run fleet at a pseudo-terminal, as a user sees it."""

import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tests.rigs.process import clean_environment
from tests.rigs.trial import Trial
from tests.rigs.warm import Warm


def terminal_environment(trial: Trial) -> dict[str, str]:
    """Return the environment of a user at a terminal, who is not CI."""
    environment = {**clean_environment(trial.folder), "TERM": "xterm"}
    environment.pop("CI", None)
    return environment


def read_until_closed(terminal: int) -> Iterator[bytes]:
    """Yield the output of a terminal: the kernel returns a part at a time."""
    with suppress(OSError):  # no process has the other end open
        while True:
            yield os.read(terminal, 65536)


@contextmanager
def run_at_terminal(
    trial: Trial, warm: Warm, *words: str, stdout: int | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run fleet at a terminal; yield its process and our end of the terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*warm.command(), *words],
        cwd=trial.folder,
        env=terminal_environment(trial),
        stdin=theirs,
        stdout=stdout or theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        yield process, ours
    os.close(ours)


def answer_at_terminal(trial: Trial, warm: Warm, answer: bytes, *words: str) -> tuple[int, str]:
    """Run fleet with an answer that is already typed; return its exit code and output."""
    with run_at_terminal(trial, warm, *words) as (process, terminal):
        os.write(terminal, answer)
        shown = b"".join(read_until_closed(terminal)).decode()
    return process.returncode, shown
