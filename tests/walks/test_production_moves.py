"""A large Resalloc moves to fleet: 26 pools over four clouds, their own scripts, and back again.

What exists are files: a machine each in `vms`, and its disks in `disks`, which only the scripts
touch. They are as unforgiving as those in use: one deletes each disk whose name begins with the
machine's, the lists print what begins with the pool's name as Resalloc calls it, and fail where
that is nothing.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
import yaml

from fleet.apply.config import check_file
from fleet.clock import SystemClock
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from fleet.tickets.service import TicketCalls
from fleet.tickets.store import DatabaseTickets
from tests.migrate.production import pools_yaml
from tests.rigs.resalloc_server import ResallocServer
from tests.rigs.trial import Trial

# The hypervisors of three architectures, EC2 and the IBM Cloud: each keeps its own machines.
HOST = """\
while [ $# -gt 1 ] && [ "$1" != -c ] && [ "$1" != --connection ]; do shift; done
at=$(echo "$2" | tr -c 'a-z0-9\\n' _)
"""
SCRIPTS = {
    "provision/libvirt-new": HOST
    + 'mkdir -p "vms/$at"; touch "vms/$at/$RESALLOC_NAME" disks/"$RESALLOC_NAME"-root '
    'disks/"$RESALLOC_NAME"-swap; echo "$RESALLOC_NAME"',
    "provision/libvirt-delete": HOST + 'rm -f disks/"$RESALLOC_NAME"* "vms/$at/$RESALLOC_NAME"',
    "provision/vm-release": "true",
    "virsh": HOST + 'ls "vms/$at" 2>/dev/null',
    "copr-resalloc-aws-new": 'mkdir -p vms/aws; touch "vms/aws/$RESALLOC_NAME" '
    'disks/"$RESALLOC_NAME"-root; echo "$RESALLOC_NAME"',
    "copr-resalloc-aws-delete": 'rm -f disks/"$RESALLOC_NAME"* "vms/aws/$RESALLOC_NAME"',
    "copr-resalloc-aws-list": 'ls vms/aws 2>/dev/null | grep "^$(echo "$2" | tr - _)"',
    "ibmcloud": 'test "$2" != volume-create || { mkdir -p vms/ibm; touch "disks/$3"; '
    'touch "vms/ibm/${3%-*}"; }',
    "copr-resalloc-ibm-cloud-delete": 'rm -f disks/"$RESALLOC_NAME"* "vms/ibm/$RESALLOC_NAME"',
    "copr-resalloc-ibm-cloud-list": 'ls vms/ibm 2>/dev/null | grep "^$4"',
    "resalloc-check-vm-ip": "true",
    "copr-check-disk": "true",
}
CLOUDS = ("copr_hv_x86_64", "copr_hv_ppc64le|copr_hv_s390x", "aws", "copr_ic")
DISKS = {"copr_hv": 2, "aws": 1, "copr_ic": 14}
APPROVAL = "  - {{guard: delete, pool: {pool}, count: 99, reason: back, expires: 2099-01-01}}\n"


class Farm:
    """A Resalloc and a fleet beside each other, over the same clouds."""

    def __init__(self, folder: Path, clock: time_machine.Traveller) -> None:
        self.folder = folder
        self.clock = clock
        (folder / "provision").mkdir()
        for name in ("disks", "vms"):
            (folder / name).mkdir()
        for name, text in SCRIPTS.items():
            path = folder / name
            path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            path.chmod(0o755)
        written = pools_yaml().replace("/var/lib/resallocserver/", f"{folder}/")
        (folder / "pools.yaml").write_text(written, encoding="utf-8")
        self.pools: dict[str, Any] = yaml.safe_load(written)
        self.resalloc = ResallocServer(folder)
        self.fleet = Trial(folder)
        (folder / "fleet.yaml").unlink()

    def do(self, *args: str) -> str:
        """Run a command, which must succeed."""
        code, said = self.fleet.do(*args)
        assert code == 0, said
        return said

    def run(self) -> None:
        """Have both make a pass, two minutes later."""
        self.clock.shift(timedelta(minutes=2))
        self.resalloc.run()
        self.do("apply")

    def known(self) -> list[str]:
        """Return the machines that fleet knows."""
        listed = json.loads(self.do("machine", "list", "--json"))["machines"]
        return sorted(each["worker"] for each in listed)

    def of(self, cloud: str) -> list[str]:
        """Return the pools of a cloud."""
        return [name for name in self.pools if re.match(cloud, name)]

    def machines(self, pools: str = "") -> list[str]:
        """Return the machines that exist of these pools, whoever made them."""
        found = [each.name for each in (self.folder / "vms").glob("*/*")]
        return sorted(name for name in found if re.match(pools, name))

    def is_whole(self) -> None:
        """See that each machine has its disks, and no disk is anybody else's."""
        disks = Counter(each.name.rpartition("-")[0] for each in (self.folder / "disks").iterdir())
        assert disks == {
            name: next(n for cloud, n in DISKS.items() if name.startswith(cloud))
            for name in self.machines()
        }

    def at_resalloc(self, pools: list[str], **keys: object) -> None:
        """Change keys of pools in pools.yaml; None takes one out."""
        for name in pools:
            changed = {**self.pools[name], **keys}
            self.pools[name] = {key: value for key, value in changed.items() if value is not None}
        (self.folder / "pools.yaml").write_text(yaml.safe_dump(self.pools), encoding="utf-8")

    def at_fleet(self, pools: list[str], mode: str) -> None:
        """Write the mode of pools into fleet.yaml."""
        path = self.folder / "fleet.yaml"
        text = path.read_text(encoding="utf-8")
        for name in pools:
            text, count = re.subn(
                rf"(^  {name}:\n    extends: .*\n)(    mode: .*\n)?",
                rf"\1    mode: {mode}\n",
                text,
                flags=re.MULTILINE,
            )
            assert count == 1, name
        path.write_text(text, encoding="utf-8")

    def take_over(self, pools: list[str]) -> None:
        """Move pools to fleet, as the guide says, while Resalloc runs on with the others."""
        self.at_resalloc(pools, max=0, cmd_list=None)
        for each in [r for r in self.resalloc.resources.values() if r.pool in pools]:
            if each.ticket is None:
                self.resalloc.delete(each)
        self.at_fleet(pools, "apply")


@pytest.fixture
def farm(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Farm]:
    """Return one whose Resalloc has all pools, and a clock that is moved by hand."""
    monkeypatch.setenv("PATH", f"{project}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(project))
    with time_machine.travel(datetime(2026, 12, 7, 8, tzinfo=UTC), tick=True) as clock:
        farm = Farm(project, clock)
        said = farm.fleet.do(
            "import", "resalloc", "pools.yaml", "--fleet", "copr", "--out", "fleet.yaml"
        )
        assert said[0] == 0, said
        farm.do("validate")
        farm.do("state", "init")
        yield farm


@pytest.mark.engine
@pytest.mark.parametrize("tickets", [12, pytest.param(48, marks=pytest.mark.long)])
def test_production_moves_by_cloud_and_back(farm: Farm, tickets: int) -> None:
    busy = farm.resalloc.take("arch_x86_64", "copr_builder")
    for _ in range(2):
        farm.resalloc.run()
    held = farm.resalloc.machine_of(busy)
    assert farm.fleet.settles()
    farm.is_whole()
    assert farm.machines() == farm.resalloc.names()
    assert len({each.pool for each in farm.resalloc.resources.values()}) == 24

    look_on(farm)

    for cloud in CLOUDS:
        others = [name for name in farm.machines() if not re.match(cloud, name)]
        farm.take_over(farm.of(cloud))
        for _ in range(2):
            farm.run()
        farm.is_whole()
        assert {*others} <= {*farm.machines()}
        assert held in farm.machines()
    assert farm.resalloc.names() == [held]
    farm.resalloc.close(busy)
    farm.run()
    farm.resalloc.delete_unused()
    assert farm.resalloc.names() == []

    assert farm.machines() == farm.known()
    a_day(farm, tickets)
    assert farm.machines() == farm.known()

    farm.at_fleet([*farm.pools], "drain")
    with (farm.folder / "fleet.yaml").open("a", encoding="utf-8") as file:
        file.write("approvals:\n")
        file.writelines(APPROVAL.format(pool=pool) for pool in farm.pools)
    # Back within two runs: the first drains, the second deletes.
    for _ in range(2):
        farm.do("apply")
    assert farm.machines() == farm.known() == []
    farm.is_whole()
    farm.at_fleet([*farm.pools], "pause")
    farm.pools = yaml.safe_load(
        pools_yaml().replace("/var/lib/resallocserver/", f"{farm.folder}/")
    )
    farm.at_resalloc([])
    farm.run()
    farm.is_whole()
    assert farm.machines() == farm.resalloc.names()
    assert len({each.pool for each in farm.resalloc.resources.values()}) == 24


def look_on(farm: Farm) -> None:
    """Have fleet observe every pool once; it plans machines in all of them and touches none."""
    before = farm.machines()
    farm.at_fleet([*farm.pools], "observe")
    farm.run()
    plan = json.loads(farm.do("plan", "--json"))
    farm.at_fleet([*farm.pools], "pause")

    spare = {each["pool"] for each in plan["withheld"] if each["action"] == "create"}
    assert spare == {each.pool for each in farm.resalloc.resources.values()}
    assert farm.machines() == before
    farm.is_whole()


def a_day(farm: Farm, tickets: int) -> None:
    """Have this many tickets come each six hours of a day; each gets a machine of its own."""
    checked = check_file(str(farm.folder / "fleet.yaml"), datetime.now(UTC).date())
    fleet = checked.fleet
    assert fleet is not None
    store = Store(sqlite_url(farm.folder / ".fleet/store.db"), "copr")
    book = DatabaseTickets(store.begin, "tickets")
    calls = TicketCalls("tickets", book, SystemClock(), lambda: fleet, lambda: None)
    archs = ("x86_64", "aarch64", "ppc64le", "s390x")
    opened: set[object] = set()
    had: dict[int, str] = {}
    for hour in range(4):
        farm.clock.shift(timedelta(hours=6))
        for nth in range(tickets):
            tags = [f"arch_{archs[nth % 4]}", "copr_builder"]
            if nth == hour:
                tags = ["arch_x86_64", "on_demand_powerful"]
            sandbox = f"o{nth % 5}/p{hour % 3}--o{nth % 5}"
            opened.add(calls.answer("backend", "takeTicket", [tags, sandbox]))
        close_those_with_machines(farm, calls, book, had)
    while book.tickets():
        close_those_with_machines(farm, calls, book, had)
    assert opened == {*had}


def close_those_with_machines(
    farm: Farm, calls: TicketCalls, book: DatabaseTickets, had: dict[int, str]
) -> None:
    """Make a pass, and close each ticket that has a machine then; no two have the same one."""
    farm.run()
    farm.is_whole()
    machines = {each.id: each.machine for each in book.tickets() if each.machine}
    assert len({*machines.values()}) == len(machines)
    assert {*machines.values()} <= {*farm.machines()}
    had |= machines
    for ticket in book.tickets():
        assert calls.answer("backend", "collectTicket", [ticket.id])
    for number in machines:
        assert calls.answer("backend", "closeTicket", [number]) is True
