"""This module strikes an apply with a signal at each of its durable steps, one run per step.

Run: python -m tests.faults.strikes FOLDER SIGNAL. Each run works on a copy of FOLDER, in a
forked process; then apply runs again, and a plan is made. Prints JSON: what each run came to.
Where a struck run left the same as one before it, times and process ids aside, what follows is
the same and is not run again.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

from fleet.cli import main
from tests.trial import Trial

STEPS = ("sqlite3.connect", "os.rename")
"""A transaction of the store or the stacks begins; the cloud's file is replaced."""
_PASSING = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+|\d+\.\d+|(?<=:)\d+(?=')")
"""A time, or the process id in the name of who holds the lock."""
_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder in it: a disk would make each step slow


def strike_each_step(folder: Path, strike: signal.Signals) -> list[dict[str, Any]]:
    """Return what became of a run that was struck at each step, until one ends unstruck."""
    runs: list[dict[str, Any]] = []
    followed: dict[str, dict[str, Any]] = {}
    for step in count(1):
        copy = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        said = copy / "said.txt"
        code = _apply_struck(copy, said, strike, step)
        if "never struck" in said.read_text():
            shutil.rmtree(copy)
            return runs
        last_words = said.read_text().splitlines()[-1:] if code >= 0 else []
        said.unlink()
        left = _left_in(copy)
        if left not in followed:
            followed[left] = _follow(Trial(copy))
        runs.append({"code": code, "last words": last_words} | followed[left])
        shutil.rmtree(copy)
    raise AssertionError


def _left_in(folder: Path) -> str:
    """Return all that a run left behind, times and process ids aside."""
    parts = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        parts.append(str(path.relative_to(folder)))
        if path.suffix == ".db":
            with contextlib.closing(sqlite3.connect(path)) as connection:
                parts += connection.iterdump()
        else:
            parts.append(path.read_text(encoding="utf-8"))
    return _PASSING.sub("", "\n".join(parts))


def _follow(trial: Trial) -> dict[str, Any]:
    """Apply again, and return what that came to and what a plan then says."""
    second, why = trial.do("apply")
    plan = trial.plan()
    return {
        "next apply": why if second else "fine",
        "machines": trial.machines(),
        "states": [worker["state"] for worker in plan["workers"]],
        "left to do": plan["actions"],
    }


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
