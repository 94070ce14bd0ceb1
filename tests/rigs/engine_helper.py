"""A helper over a written engine; a worker's name says what happens to it.

Run: python -m tests.rigs.engine_helper DESCRIPTOR.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleet.engines.parallel import running, serve
from fleet.errors import PlanRefused, StackFailed
from fleet.model.facts import WorkerInputs
from fleet.ports import NO_USER_DATA, Engine, Progress, StackRef, StackStep
from tests.fakes.engine import FakeEngine

_SLOW = """
import pathlib, signal

def cancel(*_):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    pathlib.Path("meeting").write_text("cancelled")

signal.signal(signal.SIGINT, cancel)
pathlib.Path("meeting").write_text("here")
while True:
    signal.pause()
"""


class Scripted(FakeEngine):
    """Does what the names of workers say; `folder` is where helpers meet."""

    def __init__(self, folder: Path) -> None:
        super().__init__("pulumi")
        self._folder = folder

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Refuse a worker that is not allowed."""
        if any(worker.name == "forbidden" for worker in workers):
            raise PlanRefused("refused: forbidden")
        return super().preview(ref, workers)

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Make machines; then what the name of a worker says."""
        names = {worker.name for worker in workers}
        done = super().up(ref, workers, progress, user_data)
        if "killed" in names:
            os.kill(os.getpid(), signal.SIGKILL)
        if "cancelled" in names:
            with running.one():
                cli = subprocess.run(["sleep", "infinity"], check=False)
            raise StackFailed(f"ended by {-cli.returncode}", done=("cancelled",))
        if "two" in names:
            self._run_two()
        if "thinking" in names:
            (self._folder / "meeting").write_text("here")
            (self._folder / "meeting").read_text()
        if "first" in names:
            (self._folder / "meeting").write_text("here")
        if "second" in names:
            (self._folder / "meeting").read_text()
        if "secret" in names:
            raise StackFailed("given " + self.given["secret"], failed={"secret": str(os.getpid())})
        return done

    def _run_two(self) -> None:
        """Run two programs; one that is cancelled says so and goes on until it is once more."""
        for number in (1, 2):
            with running.one():
                (self._folder / f"begun-{number}").touch()
                subprocess.run([sys.executable, "-c", _SLOW], check=False, cwd=self._folder)


def engines_for(folder: Path) -> Callable[[str], Engine]:
    """Return the one engine for every provider."""
    engine = Scripted(folder)
    return lambda _: engine


if __name__ == "__main__":
    serve(int(sys.argv[1]), engines_for)
