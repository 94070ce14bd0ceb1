"""Strike an apply with a signal at each of its durable steps.

`main` is run as a program with FOLDER SIGNAL (`Warm.run`). After each strike apply runs again, in
a copy of FOLDER, and a plan is made. Prints JSON: what each strike came to. Where one left the
same as one before it, times and process ids aside, what follows is the same and is not run again.
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
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

from fleet.program import main as run
from tests.rigs.trial import Trial

STEPS = ("sqlite3.connect", "os.rename")
"""A transaction of the store or the stacks begins; the cloud's file is replaced."""
_PASSING = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+|\d+\.\d+|(?<=:)\d+(?=')")
"""A time, or the process id in the name of who holds the lock."""
_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder in it: a disk would make each step slow

Run = dict[str, Any]


def killed(folder: Path) -> Iterator[tuple[Path, Run]]:
    """Yield what an apply leaves that is killed at each step: the files of that moment.

    Nothing of a process that is killed runs any more, so one apply, copied as it goes, shows all.
    The process has ended before anything follows.
    """
    with _copied(folder) as copy, _copied(folder) as copies:

        def keep(step: int) -> None:
            shutil.copytree(copy, copies / f"{step}")

        _in_child(copy, copy / "said.txt", keep)
        for step in count(1):
            if not (copies / f"{step}").exists():
                return
            yield copies / f"{step}", {}


def interrupted(folder: Path) -> Iterator[tuple[Path, Run]]:
    """Yield what an apply leaves that is interrupted at each step, and what it said of it."""
    for each in count(1):
        with _copied(folder) as copy:
            said = copy / "said.txt"

            def interrupt(step: int, struck: int = each) -> None:
                if step == struck:
                    os.kill(os.getpid(), signal.SIGINT)

            code, steps = _in_child(copy, said, interrupt)
            if steps < each:
                return
            yield copy, {"code": code, "last words": said.read_text().splitlines()[-1:]}


STRIKES = {"SIGKILL": killed, "SIGINT": interrupted}


def strike_each_step(folder: Path, strike: str) -> list[Run]:
    """Return what became of an apply that is struck, one for each of its steps."""
    runs: list[Run] = []
    followed: dict[str, Run] = {}
    for copy, ended in STRIKES[strike](folder):
        (copy / "said.txt").unlink()
        left = _left_in(copy)
        if left not in followed:
            followed[left] = _follow(Trial(copy))
        runs.append(ended | followed[left])
    return runs


@contextlib.contextmanager
def _copied(folder: Path) -> Iterator[Path]:
    memory = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        yield Path(copy)


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


def _follow(trial: Trial) -> Run:
    """Apply again, and return what that came to and what a plan then says."""
    second, why = trial.do("apply")
    plan = trial.plan()
    return {
        "next apply": why if second else "fine",
        "machines": trial.machines(),
        "states": [worker["state"] for worker in plan["workers"]],
        "left to do": plan["actions"],
    }


def _in_child(folder: Path, said: Path, at_step: Callable[[int], None]) -> tuple[int, int]:
    """Apply in a child that calls at each step; return its exit code and how many there were."""
    told, tells = os.pipe()
    child = os.fork()
    if child:
        os.close(tells)
        with os.fdopen(told) as steps:
            seen = steps.read()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(seen)
    code = 99
    with said.open("w") as file, contextlib.redirect_stdout(file), contextlib.chdir(folder):
        os.dup2(file.fileno(), 2)
        sys.stderr = file
        step = count(1)
        running = [True]

        def watch(event: str, _: object) -> None:
            if event in STEPS and running:
                os.write(tells, b".")
                at_step(next(step))

        sys.addaudithook(watch)
        code = run(["apply"])
        # Who measures coverage writes a database of its own when the process ends.
        running.clear()
    os._exit(code)


def main() -> None:
    """Strike, and say what became of it."""
    print(json.dumps(strike_each_step(Path(sys.argv[1]), sys.argv[2])))  # noqa: T201 - its output
