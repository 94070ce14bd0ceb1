"""Commands of a person's own that do what they should not: no machine is lost, none made twice."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.rigs.repeats import slow_but
from tests.rigs.resalloc_client import OldClient
from tests.rigs.trial import Trial

YAML = """\
fleet: trial
queues:
  work: {kind: tickets}
pools:
  one:
    provider: hooks
    hooks:
      interface: resalloc
      new: [./new]
      delete: [./delete]
      list: [./list]
      livecheck: [./livecheck]
      livecheck_every: 1s
      timeouts: {new: 1s, list: 1s, livecheck: 1s}
    machine: {cores: 4, memory: 8GiB, price: 1 EUR/h}
    provides: [one]
    workers: {max: 3, min: 1}
"""
MAKE = 'mkdir -p up; echo new >> calls; touch "up/$RESALLOC_NAME"'
SCRIPTS = {
    "new": f'{MAKE}; echo "$RESALLOC_NAME"',
    "delete": 'rm "up/$RESALLOC_NAME"',
    "list": "mkdir -p up; ls up",
    "livecheck": "true",
}
FLOOD = "yes garbage | head -c 1000000"


class Bad(NamedTuple):
    """A script in place of a good one, and what is told of it."""

    text: str
    said: str


class Shop:
    """A fleet of one pool, its scripts, and the machines that there really are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trial = Trial(folder)
        self.trial.write(YAML)
        for name, text in SCRIPTS.items():
            self.put(name, text)
        self.trial.init()

    def put(self, name: str, text: str) -> None:
        """Have a script be this; nothing: there is none."""
        path = self.folder / name
        path.unlink(missing_ok=True)
        if text:
            path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            path.chmod(0o644 if text == "not executable" else 0o755)

    def up(self) -> list[str]:
        """Return the machines that exist."""
        return sorted(each.name for each in (self.folder / "up").glob("*"))

    def made(self) -> int:
        """Return how often `new` made a machine."""
        calls = self.folder / "calls"
        return len(calls.read_text(encoding="utf-8").split()) if calls.exists() else 0

    def listed(self) -> list[str]:
        """Return the machines that fleet knows."""
        code, said = self.trial.do("machine", "list", "--json")
        assert code == 0, said
        return [each["worker"] for each in json.loads(said)["machines"]]


@pytest.fixture
def shop(project: Path) -> Shop:
    """Return one whose scripts are good."""
    return Shop(project)


NEW = {
    "missing": Bad("", "./new cannot be started: No such file or directory"),
    "not executable": Bad("not executable", "./new cannot be started: Permission denied"),
    "fails": Bad("echo no room >&2; exit 3", "no room"),
    "floods": Bad(f"{MAKE}; {FLOOD}", "printed more than 65536 bytes"),
    "no text": Bad(f"{MAKE}; printf '\\377\\376'", "printed text that is not UTF-8"),
    "hangs": Bad(f"{MAKE}; exec sleep 300", "raise `timeouts: {new: …}`"),
    "fails and has made": Bad(f"{MAKE}; exit 1", "but the machine exists"),
}


@pytest.mark.parametrize("name", slow_but(["fails and has made"], NEW))
def test_machine_of_bad_new_command_is_deleted_and_created_once(name: str, shop: Shop) -> None:
    """What `new` printed is what a ticket is told: a machine without it is of no use."""
    bad = NEW[name]
    shop.put("new", bad.text)
    said = shop.trial.told("apply", code=1)
    left = shop.up()
    shop.put("new", SCRIPTS["new"])

    for _ in range(4):
        code, told = shop.trial.do("apply")

    assert bad.said in said
    assert len(said) < 20_000
    assert code == 0, told
    assert left == ["one_f0001"] * (MAKE in bad.text)
    assert shop.up() == shop.listed() == ["one_f0002" if left else "one_f0001"]
    assert shop.made() == 1 + len(left)


@pytest.mark.slow
def test_running_script_is_unaffected_by_its_replacement(shop: Shop) -> None:
    shop.put("better", SCRIPTS["new"])
    shop.put("new", f"mv better new; {SCRIPTS['new']}")

    shop.trial.told("apply")

    assert (shop.made(), shop.up()) == (1, shop.listed())


LISTS = {
    "missing": Bad("", "./list cannot be started"),
    "not executable": Bad("not executable", "Permission denied"),
    "fails": Bad("echo no route >&2; exit 1", "no route"),
    "says nothing and fails": Bad("exit 1", "list"),
    "floods": Bad("yes garbage | head -c 20000000", "printed more than 16777216 bytes"),
    "no text": Bad("printf '\\377\\376'", "printed text that is not UTF-8"),
    "hangs": Bad("exec sleep 300", "raise `timeouts: {list: …}`"),
}


@pytest.mark.parametrize("name", slow_but(["fails"], LISTS))
def test_no_machine_is_created_or_deleted_when_list_is_invalid(name: str, shop: Shop) -> None:
    assert shop.trial.do("apply")[0] == 0
    before = shop.up()
    shop.put("list", LISTS[name].text)

    codes, said = zip(*(shop.trial.do("apply") for _ in range(2)), strict=True)
    shop.put("list", SCRIPTS["list"])

    assert codes == (4, 4)
    assert LISTS[name].said in said[0]
    assert shop.trial.do("apply")[0] == 0
    assert (shop.made(), shop.up(), shop.listed()) == (1, before, before)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[OldClient, Callable[[str], str]]]:
    """Yield a client of a `fleet serve` in a process of its own, and what waits for its words."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet", "serve", "--listen", "127.0.0.1:0", "--every", "1s"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    (folder / "pid").write_text(str(process.pid), encoding="utf-8")

    def hear(word: str) -> str:
        return next(line for line in process.stderr or () if word in line)

    try:
        yield OldClient(hear("listening at").split()[2]), hear
    finally:
        process.kill()
        process.communicate()


# It dies after it has looked and before it gives; or when it has just given.
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["livecheck", "given"])
def test_killed_ticket_service_gives_each_machine_once(moment: str, shop: Shop) -> None:
    shop.trial.write(YAML.replace("{max: 3, min: 1}", "{max: 3, min: 2}"))
    assert shop.trial.do("apply")[0] == 0
    with serving(shop.folder) as (client, hear):
        if moment == "livecheck":
            shop.put("livecheck", "test ! -e taken || kill -9 $(cat pid)")
        tickets = [client.take("one") for _ in range(3)]
        (shop.folder / "taken").touch()
        with suppress(StopIteration):
            hear("assigned to ticket")
            os.kill(int((shop.folder / "pid").read_text()), signal.SIGKILL)
    shop.put("livecheck", SCRIPTS["livecheck"])

    with serving(shop.folder) as (client, _):
        given = sorted(str(client.wait(number)).strip() for number in tickets)

    assert given == shop.up() == shop.listed()
    assert (len(given), shop.made()) == (3, 3)
