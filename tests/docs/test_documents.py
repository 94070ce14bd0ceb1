"""The README and the tutorial show what the program really says.

A block after `<!-- file: NAME -->` is written to that file; each `$ command` of a console block
is run in one folder, and what follows must be what it printed. `pytest --update-docs` rewrites it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import ROOT, clean_environment

DOCUMENTS = ("README.md", "docs/tutorial.md")
BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<kind>\w+)\n(?P<body>.*?)```\n", re.DOTALL
)
# What differs from run to run: the time, digests of it, ages in seconds, and how wide they are.
VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|\+00:00|Z)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "DIGEST"),
    (re.compile(r"\b\d+ s\b"), "N s"),
    (re.compile(r" +"), " "),
)


class Shell:
    """Runs commands in one folder, with `fleet` on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "home").mkdir()
        (folder / "bin").mkdir()
        self._environment = clean_environment(folder / "home") | {"CI": "true"}
        self._environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{self._environment['PATH']}"
        fleet = folder / "bin" / "fleet"
        fleet.write_text(f'#!/bin/sh\nexec {sys.executable} -m fleet "$@"\n', encoding="utf-8")
        fleet.chmod(0o755)
        self.project = folder / "project"
        self.project.mkdir()
        for name in ("fleet.yaml", "world.json"):
            shutil.copy(ROOT / name, self.project)

    def run(self, command: str) -> str:
        """Return what a command prints, and its exit code when that is not 0."""
        completed = subprocess.run(  # noqa: S602 - the documents' own commands
            command,
            shell=True,
            cwd=self.project,
            env=self._environment | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        code = f"[exit code {completed.returncode}]\n" if completed.returncode else ""
        return completed.stdout + code


def replayed(text: str, shell: Shell) -> str:
    """Return a document with what its commands really print."""

    def replay(match: re.Match[str]) -> str:
        if match["file"]:
            (shell.project / match["file"]).write_text(match["body"], encoding="utf-8")
        if match["kind"] != "console":
            return match[0]
        parts = [f"$ {command}\n{shell.run(command)}" for command in commands(match["body"])]
        return "```console\n" + "\n".join(parts) + "```\n"

    return BLOCK.sub(replay, text)


def commands(body: str) -> Iterator[str]:
    return (line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ "))


def steady(text: str) -> str:
    for pattern, word in VARIES:
        text = pattern.sub(word, text)
    return text


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_shows_what_the_program_says(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    now = replayed(text, Shell(tmp_path))

    if request.config.getoption("--update-docs"):
        (ROOT / name).write_text(now, encoding="utf-8")
        text = now
    assert steady(now) == steady(text)
