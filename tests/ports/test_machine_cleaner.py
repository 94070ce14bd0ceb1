"""The contract of the port MachineCleaner, over the fake and over commands in both interfaces."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import pytest

from fleet.apply.parallel import yielding_cleaner
from fleet.model.facts import Listing, Machine
from fleet.ports import Cleaned, MachineCleaner
from tests.builders import a_machine
from tests.builders.sentences import tells
from tests.fakes.machine_cleaner import FakeMachineCleaner
from tests.ports.engines import a_sim_worker
from tests.rigs.hook_machines import hooks_over, write_hooks

GOOD, BAD = "debian-builders-0001", "debian-builders-0002"
RELEASE = f'test "$FLEET_MACHINE" != {BAD} || {{ echo no room >&2; exit 1; }}'
CHECK = f'test "$FLEET_MACHINE" != {BAD}'
NAMES = """\
set -eu
mkdir -p machines
cd machines
ls
"""


@dataclass
class Lent:
    """A cleaner, the machines that it has, and what is told of the first."""

    cleaner: MachineCleaner
    machines: tuple[Machine, ...]
    told: str


def fake(_: Path) -> Lent:
    cleaner = FakeMachineCleaner()
    cleaner.troubles[BAD] = "release ended with status 1: no room"
    cleaner.doubts.add(BAD)
    cleaner.told = {"data": "host-1"}
    return Lent(cleaner, (a_machine(name=GOOD), a_machine(name=BAD)), "host-1")


def own(folder: Path) -> Lent:
    write_hooks(folder)
    listing = (folder / "list.sh").read_text().replace("cat ", 'sed \'s/}$/, "data": "h"}/\' ')
    (folder / "list.sh").write_text(listing)
    return _hooked(folder, "fleet", "h")


def resalloc(folder: Path) -> Lent:
    write_hooks(folder, list=NAMES)
    with (folder / "new.sh").open("a") as script:
        script.write('echo "$RESALLOC_NAME.example.org"\n')
    return _hooked(folder, "resalloc", f"{GOOD}.example.org")


def _hooked(folder: Path, interface: str, told: str) -> Lent:
    (folder / "release.sh").write_text(RELEASE)
    (folder / "livecheck.sh").write_text(CHECK)
    cloud = hooks_over(folder, interface=interface, release=["sh", "release.sh"])
    for name in (GOOD, BAD):
        cloud.create(a_sim_worker(name))
    listing = cloud.list("debian")
    assert isinstance(listing, Listing), listing
    return Lent(cloud, listing.machines, told)


@pytest.fixture(params=[fake, own, resalloc, "aside"])
def lent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lent]:
    """Return each kind of cleaner with two machines, the second of which has its troubles."""
    if request.param == "aside":
        lent, turn = own(tmp_path), Lock()
        with turn:
            yield replace(lent, cleaner=yielding_cleaner(lent.cleaner, turn))
        return
    make: Callable[[Path], Lent] = request.param
    yield make(tmp_path)


def test_clean_returns_trouble_of_failing_machine(lent: Lent) -> None:
    cleaned = {each.name: lent.cleaner.clean(each) for each in lent.machines}

    assert cleaned[GOOD] == Cleaned()
    assert cleaned[BAD].begun
    assert tells(cleaned[BAD].trouble, "release", "1", "no room")


def test_machine_with_failed_livecheck_is_doubted(lent: Lent) -> None:
    assert set(lent.cleaner.doubted()) == {BAD}


def test_particulars_contain_output_of_commands(lent: Lent) -> None:
    assert lent.cleaner.particulars(lent.machines[0])["data"] == lent.told
