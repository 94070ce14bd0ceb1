"""What move-from-resalloc.md passes on to a Resalloc, beside a service that answers so."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.clouds.hooks.interface import ListedMachine, parse
from fleet.model.facts import MachineState, World
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk
from tests.builders import NOW, a_listing, a_machine, a_stack, ago, some_inputs
from tests.builders.ticketing import a_ticket
from tests.rigs.ticket_service import TicketService

PAGE = Path(__file__).parents[2] / "docs/how-to/move-from-resalloc.md"
MACHINE = "copr-old-0001"
LABELS = {"fleet": "copr", "pool": "old"}


@pytest.fixture
def resalloc(tmp_path: Path) -> Iterator[TicketService]:
    with TicketService(tmp_path) as service:
        yield service


class Bridge:
    """The commands of the page, in a folder."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url
        script = re.search(
            r"<!-- file: bridge.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
        )
        assert script is not None
        (folder / "bridge.py").write_text(script[1], encoding="utf-8")

    def do(self, hook: str, *tags: str, **told: str) -> str:
        """Run a command as fleet does, and return what it printed."""
        return self.run((sys.executable, "bridge.py", *tags), hook, **told)

    def run(self, command: Sequence[str], hook: str, **told: str) -> str:
        """Run the bridge by another command, and return what it printed."""
        done = subprocess.run(
            command,
            cwd=self._folder,
            env={"PATH": os.environ["PATH"], "OLD_RESALLOC": self._url, "FLEET_HOOK": hook} | told,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def listed(self) -> list[ListedMachine]:
        """Return the machines that it lists."""
        return parse(self.do("list"))


def pooled() -> Fleet:
    """Return a fleet with the pool of the page."""
    written = re.search(
        r"```yaml\n(providers:\n  old-s390x:.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    assert written is not None
    image = {"suite": "trixie", "architecture": "s390x"}
    rest = {
        "fleet": "copr",
        "queues": {"tickets": {"kind": "tickets"}},
        "images": {"s390x": image | {"provides": ["copr_builder", "arch_s390x"]}},
    }
    return Fleet.model_validate(yaml.safe_load(written[1]) | rest)


@pytest.fixture
def bridge(resalloc: TicketService, tmp_path: Path) -> Bridge:
    (tmp_path / "new").mkdir()
    return Bridge(tmp_path / "new", resalloc.url)


def test_bridge_maps_ticket_states_and_data_to_machine(
    resalloc: TicketService, bridge: Bridge
) -> None:
    told: dict[str, Any] = {"FLEET_MACHINE": MACHINE, "FLEET_TYPE": "own"}
    told |= {"FLEET_LABELS": json.dumps(LABELS)}

    assert bridge.listed() == []
    bridge.do("new", "extra_powerful", **told)
    (starting,) = bridge.listed()
    resalloc.give(1, answer="host: 192.0.2.1\nname: m1")
    (running,) = bridge.listed()
    resalloc.lose(1)
    (lost,) = bridge.listed()
    bridge.do("delete", FLEET_MACHINE=MACHINE)
    bridge.do("delete", FLEET_MACHINE=MACHINE)

    assert (starting.name, starting.type, starting.labels) == (MACHINE, "own", LABELS)
    assert [each.state for each in (starting, running, lost)] == ["starting", "running", "failed"]
    assert running.data.splitlines() == ["host: 192.0.2.1", "name: m1"]
    assert bridge.listed() == []
    bridge.do("new", "extra_powerful", **told)
    bridge.do("delete", FLEET_MACHINE=MACHINE)
    assert resalloc.client.collect(2)["closed"] is True


def test_ticket_with_failed_record_does_not_break_the_list(
    resalloc: TicketService, bridge: Bridge
) -> None:
    """As where a list reads while a ticket is being noted."""
    new = (sys.executable, "bridge.py", "extra_powerful")
    on_full_disk = ("sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *new)

    with pytest.raises(subprocess.CalledProcessError):
        bridge.run(on_full_disk, "new", FLEET_MACHINE=MACHINE, FLEET_TYPE="own", FLEET_LABELS="{}")

    assert resalloc.client.collect(1)["ready"] is False
    assert bridge.listed() == []


def test_ticket_may_wait_in_bridge_for_days() -> None:
    """Else it was closed after boot.deadline, and opened anew behind all others."""
    fleet = pooled()
    waits = a_ticket(tags=("arch_s390x", "copr_builder"), opened_at=ago(days=6), heard_at=NOW)
    machine = {"name": "copr-old-s390x-0001", "type": "own"}
    booting = a_machine(
        **machine,
        pool="old-s390x",
        id="1",
        state=MachineState.STARTING,
        created_at=ago(days=6),
    )
    world = World(
        fleet=fleet.fleet,
        time=NOW,
        queues={"tickets": read_desk(fleet, [waits], (), NOW)},
        providers={"old-s390x": a_listing(booting)},
        stacks={
            "old-s390x": a_stack(
                provider="old-s390x",
                workers=(some_inputs(**machine),),
                ids={"copr-old-s390x-0001": "1"},
            )
        },
    )

    plan = reconcile(fleet, world)

    assert [(each.worker, each.reason) for each in plan.workers] == [
        ("copr-old-s390x-0001", "serves-waiting")
    ]
    assert plan.actions == ()
