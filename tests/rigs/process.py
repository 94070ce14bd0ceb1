"""Run the program the way a person does: as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parent.parent.parent
Completed = subprocess.CompletedProcess[str]


class RunFleet(Protocol):
    """The fixture `run_fleet`."""

    def __call__(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Completed: ...


def clean_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment that holds nothing of the person who runs the tests."""
    coverage = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
    return {
        **coverage,
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "PYTHONWARNINGS": "error",
        **(extra or {}),
    }


def run_process(
    *command: str | Path,
    cwd: Path,
    env: Mapping[str, str],
    stdin: str = "",
    timeout: float = 120,
) -> Completed:
    """Run a command to its end and return what it said, never raising for its exit code."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=dict(env),
        input=stdin,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",
        capture_output=True,
        timeout=timeout,
        check=False,
    )


def fleet_command() -> tuple[str, ...]:
    """Return how to start the program from the checkout under test."""
    return (sys.executable, "-m", "fleet")


def unwrapped(text: str) -> str:
    """Return a report with the lines that were wrapped at 100 columns joined again."""
    lines: list[str] = []
    last = ""
    for line in text.splitlines():
        word = line.split(maxsplit=1)[0] if line.startswith("  ") and line.strip() else ""
        if word and len(last) + 1 + len(word) > 100:
            lines[-1] += f" {line.lstrip()}"
        else:
            lines.append(line)
        last = line
    return "\n".join(lines) + "\n"


def git(folder: Path, *words: str) -> None:
    """Run git as somebody."""
    who = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    command = ("git", "-C", str(folder), *who, *words)
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def a_dead_process() -> int:
    """Return the number of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid
