"""The process of a helper: what is left when it was ended."""

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.engines.parallel import Helper

_SET_CHILD_SUBREAPER = 36
"""See prctl(2)."""
STARTS_ANOTHER = """
import pathlib, subprocess, sys, time
pathlib.Path(sys.argv[1]).write_text(str(subprocess.Popen(["sleep", "600"]).pid))
time.sleep(600)
"""


@pytest.fixture
def init_of_a_container() -> Iterator[None]:
    """Have this process inherit whose parents have ended, as process 1 of a container does."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1)
    yield
    libc.prctl(_SET_CHILD_SUBREAPER, 0)


@pytest.mark.usefixtures("init_of_a_container")
def test_ended_helper_kills_its_child_processes(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pid")
    helper = Helper([sys.executable, "-c", STARTS_ANOTHER, str(tmp_path / "pid")], None)
    pid = (tmp_path / "pid").read_text()

    helper.end()

    assert not Path(f"/proc/{pid}").exists()
