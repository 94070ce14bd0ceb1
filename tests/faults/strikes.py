"""This module strikes an apply with a signal at each of its durable steps, one run per step.

Run: python -m tests.faults.strikes FOLDER SIGNAL. Each run works on a copy of FOLDER, in a
forked process; then apply runs again, and once more. Prints JSON: what each run came to.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from fleet.cli import main
from tests.trial import Trial

STEPS = ("sqlite3.connect", "os.rename")
"""A transaction of the store or the stacks begins; the cloud's file is replaced."""
_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder in it: a disk would make each step slow


def strike_each_step(folder: Path, strike: signal.Signals) -> list[dict[str, Any]]:
    """Return what became of a run that was struck at each step, until one ends unstruck."""
    runs: list[dict[str, Any]] = []
    for step in count(1):
        copy = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        said = copy / "said.txt"
        code = _apply_struck(copy, said, strike, step)
        if "never struck" in said.read_text():
            shutil.rmtree(copy)
            return runs
        trial = Trial(copy)
        second, why = trial.do("apply")
        plan = trial.plan()
        runs.append(
            {
                "code": code,
                "last words": said.read_text().splitlines()[-1:] if code >= 0 else [],
                "next apply": why if second else "fine",
                "machines": trial.machines(),
                "states": [worker["state"] for worker in plan["workers"]],
                "left to do": plan["actions"],
            }
        )
        shutil.rmtree(copy)
    raise AssertionError


def _apply_struck(folder: Path, said: Path, strike: signal.Signals, step: int) -> int:
    """Apply in a child; return its exit code, or minus the signal that killed it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 99
    with said.open("w") as file, contextlib.redirect_stdout(file), contextlib.chdir(folder):
        os.dup2(file.fileno(), 2)
        sys.stderr = file
        steps = count(1)

        def watch(event: str, _: object) -> None:
            if event in STEPS and next(steps) == step:
                os.kill(os.getpid(), strike)

        sys.addaudithook(watch)
        code = main(["apply"])
        if next(steps) <= step:
            file.write("never struck")
    os._exit(code)


if __name__ == "__main__":
    print(json.dumps(strike_each_step(Path(sys.argv[1]), signal.Signals[sys.argv[2]])))  # noqa: T201 - its output
