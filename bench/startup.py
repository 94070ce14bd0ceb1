"""Measure what starting the program costs, beside a bare interpreter.

CPU time (user and system) of whole processes, the best of several rounds; the rounds take
turns, so that a busy moment of the machine hits all of them alike.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.report import Report

ROUNDS = 15
LINES = 500
HEAD = """\
# An invented fleet of {lines} lines, for measuring.
fleet: bench
providers:
  desk: {{kind: sim}}
queues:
  trial: {{kind: world, path: world.json}}
images:
  trixie: {{existing: {{desk: trixie}}, provides: ["worker:task:worker:sbuild:version:1"]}}
pools:
"""
POOL = """\
  pool-{number:03}:
    provider: desk
    machine: ccx33
    image: trixie
    workers: {{max: {count}, spare: 0}}
"""


def measure() -> Report:
    """Return milliseconds of CPU per command, and each beside the bare interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "fleet.yaml").write_text(fleet_of(LINES), encoding="utf-8")
        (Path(folder) / "world.json").write_text(
            '{"format": "fleet-world-1", "fleet": "bench", "time": "2026-01-01T00:00:00Z"}',
            encoding="utf-8",
        )
        fleet = str(Path(sys.executable).with_name("fleet"))
        commands = {
            "interpreter": [sys.executable, "-c", "pass"],
            "help": [fleet, "--help"],
            "validate": [fleet, "validate"],
        }
        best = dict.fromkeys(commands, float("inf"))
        for _ in range(ROUNDS):
            for name, command in commands.items():
                best[name] = min(best[name], cpu_milliseconds(command, folder))
    return Report(
        name="startup",
        figures={f"{name}_cpu_ms": value for name, value in best.items()},
        ratios={
            "help_over_interpreter": best["help"] / best["interpreter"],
            "validate_over_interpreter": best["validate"] / best["interpreter"],
        },
        targets={"help_over_interpreter": 5, "validate_over_interpreter": 20},
    )


def fleet_of(lines: int) -> str:
    """Return a valid fleet.yaml of about this many lines, never more."""
    head = HEAD.format(lines=lines)
    pools = (lines - head.count("\n")) // POOL.count("\n")
    return head + "".join(POOL.format(number=n, count=1 + n % 9) for n in range(pools))


def cpu_milliseconds(command: list[str], folder: str) -> float:
    """Run a command and return the CPU time it took; a failing one is an error."""
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    output = process.stdout.read() if process.stdout else b""
    _, status, usage = os.wait4(process.pid, 0)
    # Popen must not wait for what is already gone.
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.stdout:
        process.stdout.close()
    if process.returncode:
        raise SystemExit(f"bench: {command} ended with {process.returncode}: {output.decode()}")
    return (usage.ru_utime + usage.ru_stime) * 1000
