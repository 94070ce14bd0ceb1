"""The script that sets incus up: it succeeds where containers work, whatever else the machine has.

A script stands in for the one that the worker's package ships, and programs for incus and ip: they
answer for what is there.
"""

import subprocess
from pathlib import Path

import pytest

from tests.ansible.test_debusine_worker import ROLE

SET_UP = ROLE / "templates" / "debusine-worker-incus.sh.j2"
INCUS = """#!/bin/sh
case "$*" in
"network show debusinebr0") grep -qx network THERE ;;
"network create debusinebr0") ! grep -qx no-subnet THERE && echo network >>THERE ;;
"network create debusinebr0 "*) echo network >>THERE; echo "$4" >>THERE.made ;;
"profile device get debusine root pool") grep -qx root THERE ;;
"profile device get debusine host0 network") grep -qx host0 THERE ;;
"storage list --format csv") grep -x storage THERE || true ;;
*) exit 9 ;;
esac
"""
# The routes of a machine: the default one, and those of the test.
IP = """#!/bin/sh
case "$4" in
match) echo default via 192.0.2.1; cat ROUTES ;;
esac
"""
WHOLE = ("network", "root", "host0", "storage")


class Machine:
    """A machine without a network of incus, unless a test says that there is one."""

    def __init__(self, folder: Path) -> None:
        self.there = folder / "there"
        self._folder = folder
        self._routes = folder / "routes"
        self._routes.write_text("")
        for name, text in (("incus", INCUS), ("ip", IP)):
            told = text.replace("THERE", str(self.there)).replace("ROUTES", str(self._routes))
            (folder / name).write_text(told, encoding="utf-8")
            (folder / name).chmod(0o755)

    def set_up(self, script: str, there: tuple[str, ...]) -> int:
        """Set incus up, and return the exit code."""
        self.there.write_text("".join(f"{each}\n" for each in there), encoding="utf-8")
        (self._folder / "configure.sh").write_text(script, encoding="utf-8")
        text = SET_UP.read_text(encoding="utf-8").replace("{{ ansible_managed | comment }}", "")
        name = "{{ debusine_worker_incus_script }}"
        command = text.replace(name, str(self._folder / "configure.sh"))
        path = f"{self._folder}:/usr/bin:/bin"
        done = subprocess.run(
            ["/bin/sh", "-c", command], check=False, capture_output=True, env={"PATH": path}
        )
        return done.returncode

    def has_routes(self, *lines: str) -> None:
        """Have the machine's own routes lead to every subnet."""
        self._routes.write_text("".join(f"{line}\n" for line in lines))

    @property
    def made(self) -> str:
        """Return the address of the network that was made by hand; empty: none was."""
        path = self.there.with_suffix(".made")
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# The script's last word: it looks for a reason in a log that is not there.
NO_MACHINE = "set -eu; if true; then grep 'not operational' /nowhere/incus.log; fi"


@pytest.mark.parametrize(
    ("script", "there", "routes", "result"),
    [
        ("exit 0", (), (), (True, "")),
        (NO_MACHINE, WHOLE, (), (True, "")),
        ("exit 0", ("no-subnet",), (), (True, "ipv4.address=10.73.91.1/24")),
        ("exit 2", ("no-subnet", *WHOLE[1:]), ("10.0.0.0/8 dev eth1",), (False, "")),
        *(
            ("exit 2", tuple(each for each in WHOLE if each != missing), (), (False, ""))
            for missing in WHOLE[1:]
        ),
    ],
)
def test_incus_is_set_up_unless_a_part_is_missing(
    machine: Machine,
    script: str,
    there: tuple[str, ...],
    routes: tuple[str, ...],
    result: tuple[bool, str],
) -> None:
    machine.has_routes(*routes)

    assert (machine.set_up(script, there) == 0, machine.made) == result
