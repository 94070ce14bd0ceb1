"""Run the Pulumi CLI as a process, with a time limit.

The CLI has its own session, so that the terminal's Ctrl-C does not reach it. Its output goes to
unnamed files: with a pipe, the CLI would die with fleet, and leave its lock and unfinished steps.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import NamedTuple

from fleet.errors import EngineAbsent
from fleet.schema.units import write_duration
from fleet.state.processes import kill_by_environment, later_interrupts

_running: set["subprocess.Popen[bytes]"] = set()


def interrupt_all() -> None:
    """Cancel all running operations gracefully. A second call cancels them immediately."""
    for process in tuple(_running):
        process.send_signal(signal.SIGINT)


class Overdue(Exception):
    """The CLI exceeded its time limit and was stopped."""


class Answer(NamedTuple):
    """The exit code and the output of a command of the CLI."""

    code: int
    stdout: str
    stderr: str


class Command(NamedTuple):
    """The CLI, its folder and its environment.

    After `limit` seconds the CLI is interrupted, so that it records its completed steps. `grace`
    seconds later the CLI is killed with all its children.
    """

    cli: Path
    folder: Path
    environment: Mapping[str, str]
    limit: float = 3600
    grace: float = 60

    def run(self, *words: str) -> Answer:
        """Run a command of the CLI; raises Overdue if the CLI was stopped at its time limit."""
        mark = token_hex(8)
        with TemporaryFile() as out, TemporaryFile() as err:
            try:
                with later_interrupts():
                    process = subprocess.Popen(  # noqa: S603 - the CLI, with words of fleet
                        [self.cli, "--non-interactive", *words],
                        cwd=self.folder,
                        env={**os.environ, **self.environment, "FLEET_OPERATION": mark},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        start_new_session=True,
                    )
                    _running.add(process)
            except OSError as error:
                raise EngineAbsent(f"{self.cli} cannot be started: {error.strerror}") from error
            try:
                self._wait(process, mark)
            finally:
                _running.discard(process)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode(errors="replace"))
        return Answer(process.returncode, *texts)

    def _wait(self, process: "subprocess.Popen[bytes]", mark: str) -> None:
        try:
            process.wait(self.limit)
        except BaseException as error:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(self.grace)
            kill_by_environment(mark)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise Overdue(write_duration(int(self.limit))) from error
            raise
        if process.returncode < 0:
            # A killed CLI leaves its plugins running.
            kill_by_environment(mark)
