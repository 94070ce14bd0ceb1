"""Run the scripts of tools/ as a person does, with programs that a test made up."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.rigs.process import ROOT


def run_tool(name: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script of tools/ in this environment alone."""
    return subprocess.run(
        [sys.executable, ROOT / "tools" / name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def bare_environment(folder: Path) -> dict[str, str]:
    """Return an environment whose home is this folder, and whose programs are in its `bin`."""
    (folder / "bin").mkdir()
    return {"HOME": str(folder), "PATH": str(folder / "bin")}


def a_program(path: Path, text: str) -> None:
    """Make a program of a few lines of shell."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
