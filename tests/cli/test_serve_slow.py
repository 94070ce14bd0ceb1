"""`fleet serve` beside commands that take long: handing out never waits for making or deleting.

A command of these pools says in `calls` that it has begun, and ends once somebody writes into the
pipe of its pool; Resalloc answers within a tenth of a second meanwhile.
"""

import os
import threading
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from tests.builders.sentences import tells
from tests.cli.test_serve import Heard, served
from tests.rigs.process import Completed, RunFleet
from tests.rigs.resalloc_client import OldClient
from tests.rigs.trial import Trial

SCRIPT = """\
echo "$1 $RESALLOC_NAME" >> calls
case $1 in
new) [ ! -p "new-$RESALLOC_POOL_ID" ] || read -r _ < "new-$RESALLOC_POOL_ID"
     mkdir -p up; echo "host of $RESALLOC_NAME" | tee "up/$RESALLOC_NAME" ;;
delete) [ ! -p "delete-$RESALLOC_POOL_ID" ] || read -r _ < "delete-$RESALLOC_POOL_ID"
     rm "up/$RESALLOC_NAME" ;;
list) [ ! -p "list-$RESALLOC_POOL_ID" ] || read -r _ < "list-$RESALLOC_POOL_ID"
     mkdir -p up; ls up ;;
release) [ ! -p "release-$RESALLOC_POOL_ID" ] || read -r _ < "release-$RESALLOC_POOL_ID" ;;
esac
"""
POOL = """\
  {name}:
    provider: hooks
    hooks:
      interface: resalloc
      new: [sh, ./hook.sh, new]
      delete: [sh, ./hook.sh, delete]
      release: [sh, ./hook.sh, release]
      list: [sh, ./hook.sh, list]
    machine: {{cores: 4, memory: 8GiB, price: 1 EUR/h}}
    provides: [{name}]
    workers: {{max: 3, min: {least}}}
"""


class Slow:
    """A fleet of pools whose commands wait for a word where the test says so."""

    def __init__(self, folder: Path, **least: int) -> None:
        self.trial = Trial(folder)
        self.folder = folder
        (folder / "hook.sh").write_text(SCRIPT, encoding="utf-8")
        pools = "".join(POOL.format(name=name, least=count) for name, count in least.items())
        queue = "fleet: trial\nqueues:\n  work: {kind: tickets}\n"
        self.trial.write(f"{queue}pools:\n{pools}")
        self.trial.init()
        self.trial.apply()

    def hold(self, what: str, pool: str) -> Callable[[], object]:
        """Have a command of a pool wait; return what lets it go on."""
        return hold_at(self.folder / f"{what}-{pool}")

    def calls(self, what: str) -> list[str]:
        """Return of which machines a command was begun, in its order."""
        path = self.folder / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line.split(" ")[1] for line in lines if line.startswith(f"{what} ")]

    def up(self) -> Collection[str]:
        """Return the machines that exist."""
        return sorted(path.name for path in (self.folder / "up").iterdir())


def hold_at(pipe: Path) -> Callable[[], None]:
    """Have whoever reads from here wait; return what lets them go on."""
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)

    def go_on() -> None:
        # Whoever has opened it goes on, and nobody waits there any more.
        pipe.unlink()
        os.write(held, b"go\n" * 50)

    return go_on


def seconds_until(done: Callable[[], bool]) -> None:
    """Wait until something is so; fail after a minute."""
    tick = threading.Event()
    for _ in range(1200):
        if done():
            return
        tick.wait(0.05)
    raise AssertionError("it did not come to be so within a minute")


@pytest.mark.slow
def test_serve_assigns_idle_machine_while_other_pools_create(
    tmp_path: Path,
) -> None:
    slow = Slow(tmp_path, ready=1, one=0, two=0)
    go_on = [slow.hold("new", pool) for pool in ("one", "two")]
    told: list[object] = []

    def script(client: OldClient, console: Heard) -> None:
        waiting = [client.take(tag) for tag in ("one", "two")]
        seconds_until(lambda: len(slow.calls("new")) == 3)
        told.append(client.wait(client.take("ready")))
        told.append([client.collect(number)["ready"] for number in waiting])
        for go in go_on:
            go()
        told.append([client.wait(number) for number in waiting])
        console.hear("created 1: two_f0001")

    code, console = served(slow.trial, script)

    assert (code, told) == (
        0,
        [
            "ready_f0001\n",
            [False, False],
            ["one_f0001\n", "two_f0001\n"],
        ],
    ), console.said


@pytest.mark.slow
def test_machine_is_created_while_another_pool_deletes_one(tmp_path: Path) -> None:
    slow = Slow(tmp_path, one=0, two=0)
    go = slow.hold("delete", "one")
    told: list[object] = []

    def script(client: OldClient, console: Heard) -> None:
        first = client.take("one")
        client.wait(first)
        client.close(first)
        seconds_until(lambda: bool(slow.calls("delete")))
        told.append(client.wait(client.take("two")))
        before = len(console.said)
        go()
        console.hear("deleted 1: one_f0001", before)

    code, console = served(slow.trial, script)

    assert (code, told) == (0, ["two_f0001\n"]), console.said
    assert slow.up() == ["two_f0001"]


@pytest.mark.slow
def test_other_tickets_are_served_while_a_machine_is_cleaned(tmp_path: Path) -> None:
    slow = Slow(tmp_path, one=2, two=1)
    told: list[object] = []

    def script(client: OldClient, console: Heard) -> None:
        first = client.take("one")
        machine = client.wait(first)
        go = slow.hold("release", "one")
        client.close(first)
        seconds_until(lambda: bool(slow.calls("release")))
        told.append(client.wait(client.take("two")))
        other = client.wait(client.take("one"))
        told.append(other != machine)
        third = client.take("one")
        go()
        told.append(client.wait(third))
        del console

    code, console = served(slow.trial, script)

    assert code == 0, console.said
    assert told[:2] == ["two_f0001\n", True]
    assert told[2]


@pytest.mark.slow
def test_serve_finishes_started_creation_when_signalled(tmp_path: Path) -> None:
    slow = Slow(tmp_path, one=0)
    go = slow.hold("new", "one")
    letting_go = threading.Timer(0.5, go)

    def script(client: OldClient, console: Heard) -> None:
        client.take("one")
        seconds_until(lambda: bool(slow.calls("new")))
        console.hear("in progress: one")
        letting_go.start()

    code, console = served(slow.trial, script)

    assert code == 0
    assert slow.up() == ["one_f0001"], console.said
    assert slow.trial.recorded() == ["one_f0001"]


@pytest.mark.slow
def test_apply_is_refused_while_serve_changes_machines(
    tmp_path: Path, fork_fleet: RunFleet
) -> None:
    slow = Slow(tmp_path, one=0)
    go = slow.hold("new", "one")
    told: list[Completed] = []

    def script(client: OldClient, console: Heard) -> None:
        number = client.take("one")
        console.hear("in progress: one")
        told.append(fork_fleet("apply", cwd=slow.folder))
        go()
        client.wait(number)

    served(slow.trial, script)

    assert told[0].returncode == 1, told[0].stderr
    assert tells(told[0].stderr, "lock", "fleet trial")


@pytest.mark.slow
def test_serve_assigns_idle_machine_while_list_is_slow(tmp_path: Path) -> None:
    slow = Slow(tmp_path, ready=2, one=0)
    told: list[object] = []

    def script(client: OldClient, console: Heard) -> None:
        client.wait(client.take("ready"))
        console.hear("nothing changed")
        go_on = slow.hold("list", "one")
        begun = len(slow.calls("list"))
        try:
            second = client.take("ready")
            told.append(client.wait(second))
            told.append(len(slow.calls("list")) - begun)
        finally:
            go_on()

    code, console = served(slow.trial, script)

    assert (code, told) == (0, ["ready_f0002\n", 2]), console.said
