"""Names whose bytes are not UTF-8 are an error of one line, never a traceback."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.rigs.process import ROOT, clean_environment, fleet_command
from tests.rigs.repeats import slow_but

ODD = b"x\xff"
IN_ODD_FOLDER = [
    [b"state", b"init"],
    [b"plan"],
    [b"status"],
    [b"doctor"],
    [b"log"],
    [b"explain", b"request", ODD],
    [b"report", b"--month", b"2026-11"],
]


def run(arguments: list[bytes], folder: bytes, home: Path) -> "subprocess.CompletedProcess[bytes]":
    command = [*map(os.fsencode, fleet_command()), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, check=False, env=clean_environment(home)
    )


@pytest.mark.parametrize(
    "arguments", slow_but(IN_ODD_FOLDER[:1], IN_ODD_FOLDER), ids=lambda each: b" ".join(each).hex()
)
def test_non_utf8_folder_gives_one_line_error(tmp_path: Path, arguments: list[bytes]) -> None:
    folder = os.fsencode(tmp_path) + b"/" + ODD
    os.mkdir(folder)  # noqa: PTH102 - pathlib takes no bytes
    for name in ("fleet.yaml", "world.json"):
        shutil.copy(ROOT / name, os.fsdecode(folder))

    done = run(arguments, folder, tmp_path)

    assert done.returncode == 1, done.stderr
    assert b"Traceback" not in done.stderr
    assert b"not UTF-8" in done.stderr


@pytest.mark.parametrize("arguments", [[b"validate"], [b"plan", b"--world", b"world.json"]])
def test_commands_work_in_folder_with_non_utf8_name(
    tmp_path: Path, arguments: list[bytes]
) -> None:
    folder = os.fsencode(tmp_path) + b"/" + ODD
    os.mkdir(folder)  # noqa: PTH102 - pathlib takes no bytes
    for name in ("fleet.yaml", "world.json"):
        shutil.copy(ROOT / name, os.fsdecode(folder))

    assert run(arguments, folder, tmp_path).returncode in (0, 1)
    assert b"Traceback" not in run(arguments, folder, tmp_path).stderr
