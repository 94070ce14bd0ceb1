"""The unit that sets incus up: it succeeds where containers work, whatever else the machine has.

A script stands in for the one that the worker's package ships, and a program for incus: it answers
for what is there.
"""

import subprocess
from pathlib import Path

import pytest

from tests.ansible import roots
from tests.ansible.test_debusine_worker import ROLE

UNIT = ROLE / "templates" / "debusine-worker-incus.service.j2"
INCUS = """#!/bin/sh
case "$*" in
"network show debusinebr0") grep -qx network THERE ;;
"profile device get debusine root pool") grep -qx root THERE ;;
"profile device get debusine host0 network") grep -qx host0 THERE ;;
"storage list --format csv") grep -x storage THERE || true ;;
*) exit 9 ;;
esac
"""
WHOLE = ("network", "root", "host0", "storage")


def set_up(folder: Path, script: str, there: tuple[str, ...]) -> int:
    """Run the unit's command, and return its exit code."""
    (folder / "there").write_text("".join(f"{each}\n" for each in there), encoding="utf-8")
    (folder / "configure.sh").write_text(script, encoding="utf-8")
    incus = folder / "incus"
    incus.write_text(INCUS.replace("THERE", str(folder / "there")), encoding="utf-8")
    incus.chmod(0o755)
    unit = UNIT.read_text(encoding="utf-8")
    (command,) = roots.commands_of(
        unit.replace("{{ debusine_worker_incus_script }}", str(folder / "configure.sh")),
        "ExecStart",
    )
    path = f"{folder}:/usr/bin:/bin"
    done = subprocess.run(
        ["/bin/sh", "-euc", command], check=False, capture_output=True, env={"PATH": path}
    )
    return done.returncode


def test_incus_is_set_up_when_its_script_succeeds(tmp_path: Path) -> None:
    assert set_up(tmp_path, "exit 0", ()) == 0


def test_incus_is_set_up_when_no_virtual_machine_can_run(tmp_path: Path) -> None:
    # The script's last word: it looks for a reason in a log that is not there.
    script = "set -eu; if true; then grep 'not operational' /nowhere/incus.log; fi"

    assert set_up(tmp_path, script, WHOLE) == 0


@pytest.mark.parametrize("missing", WHOLE)
def test_incus_set_up_fails_when_a_part_is_missing(tmp_path: Path, missing: str) -> None:
    there = tuple(each for each in WHOLE if each != missing)

    assert set_up(tmp_path, "exit 2", there) != 0
