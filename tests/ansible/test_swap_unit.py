"""The unit that makes the swap file: a disk that is too small for it is not filled up."""

import subprocess
from pathlib import Path

import pytest

from tests.ansible import roots
from tests.ansible.test_debusine_worker import ROLE

UNIT = ROLE / "templates" / "debusine-worker-swap.service.j2"
BYTES = "{{ debusine_worker_swap_mebibytes | int * 1024 * 1024 }}"


@pytest.mark.parametrize(("code", "left"), [(0, ["swapfile"]), (1, [])])
def test_swap_unit_leaves_no_file_when_disk_is_full(
    tmp_path: Path, code: int, left: list[str]
) -> None:
    disk, programs = tmp_path / "disk", tmp_path / "programs"
    disk.mkdir()
    programs.mkdir()
    for name, text in (("fallocate", f'touch "$3"; exit {code}'), ("mkswap", "exit 0")):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    unit = UNIT.read_text(encoding="utf-8").replace(BYTES, "4096")
    (command,) = roots.commands_of(unit, "ExecStartPre")

    done = subprocess.run(
        ["/bin/sh", "-euc", command.replace("/swapfile", f"{disk}/swapfile")],
        check=False,
        capture_output=True,
        env={"PATH": f"{programs}:/usr/bin:/bin"},
    )

    assert done.returncode == code
    assert [path.name for path in disk.iterdir()] == left
