"""The simulated cloud behaves as a cloud does: stock, boot times, names, faults, a file."""

import errno
import os
import re
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fleet.clouds.sim.machines import Menu, SimCloud, load, menu_of
from fleet.errors import CreationRefused, FleetError, SourceUnreachable
from fleet.model.facts import Listing, Machine, Unknown, Worker
from tests.builders import NOW, a_fleet
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.fakes.engine import FixedClock
from tests.ports.engines import a_sim_worker

NAME = "debian-builders-{:04}"
ONE, TWO = (a_sim_worker(NAME.format(number)) for number in (1, 2))
SOLD: Mapping[str, int | None] = {"ccx33": 2, "ccx63": None, "ccx33/spot": 1}
CASES = [*read_blocks(Path(__file__).parent / "sim")]


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


@pytest.fixture
def cloud(tmp_path: Path, clock: FixedClock) -> SimCloud:
    cloud = SimCloud(tmp_path / "sim.json", clock)
    cloud.configure(Menu(boot=60, types=dict(SOLD), never_boots=("ccx63",)))
    return cloud


def listed(cloud: SimCloud, fleet: str = "debian") -> Listing:
    listing = cloud.list(fleet)
    assert isinstance(listing, Listing), listing
    return listing


def test_console_tells_whether_a_machine_booted(cloud: SimCloud, clock: FixedClock) -> None:
    plain, never = cloud.create(ONE), cloud.create(a_sim_worker(TWO.name, type="ccx63"))
    before = cloud.console(plain).splitlines()
    clock.moment += timedelta(seconds=60)

    after, panic = (cloud.console(each).splitlines() for each in (plain, never))

    assert [len(each) for each in (before, after, panic)] == [1, 2, 2]
    assert after[1] != panic[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_machines_live_as_in_their_case(case: Block, cloud: SimCloud, clock: FixedClock) -> None:
    for step in re.split(r", (?=[a-z]+ \d)", case.parts[0]):
        said, _, refusal = step.partition(" refused ")
        verb, subject, *words = said.split()
        if verb == "later":
            clock.moment += timedelta(seconds=int(subject))
            continue
        act = acting(cloud, verb, NAME.format(int(subject)), words)
        if refusal:
            with pytest.raises(FleetError) as refused:
                act()
            assert tells(str(refused.value), *refusal.split())
        else:
            act()

    # What is read by another process is the same.
    listing = listed(SimCloud(cloud.path, clock))
    machines = ", ".join(map(machine_words, listing.machines)) or "nothing"
    workers = ", ".join(" ".join(worker_words(each)) for each in listing.workers or ())
    assert f"{machines} | {workers}".strip() == case.result


def acting(cloud: SimCloud, verb: str, name: str, words: list[str]) -> Callable[[], object]:
    """Return what a step does to a machine."""
    if verb in ("assign", "free"):
        return lambda: cloud.assign(name, words[0] if words else None)
    if verb == "delete":
        machines = load(cloud.path).machines
        ids = [key for key, each in machines.items() if each.inputs.name == name]
        return lambda: cloud.delete(ids[0] if ids else "sim-99")
    if verb != "create":
        return lambda: getattr(cloud, verb)(name)
    settings: dict[str, str] = {}
    for key, _, value in (word.partition("=") for word in words if "=" in word):
        settings[key] = f"{settings[key]} {value}" if key in settings else value
    kind = next((word for word in words if "=" not in word), "ccx33")
    return lambda: cloud.create(a_sim_worker(name, type=kind, settings=settings))


def machine_words(machine: Machine) -> str:
    assert (machine.misses, machine.was_ready, machine.looked_since) == (None, False, None)
    number, age = int(machine.name[-4:]), seconds(machine.created_at)
    return f"{number} {machine.type} of {machine.pool} {machine.state} since {age}"


def worker_words(worker: Worker) -> Iterator[str]:
    assert worker.name == worker.machine
    yield f"{int(worker.name[-4:])} of {worker.pool} {worker.state} since {seconds(worker.since)}"
    yield from (f"runs {each}" for each in [worker.running] if each)
    yield from ("draining" for _ in range(worker.draining))
    yield from (f"uses {each}" for each in [worker.uses] if each)
    for key in ("provides", "requires"):
        yield from (" ".join((key, *tags)) for tags in [getattr(worker, key)] if tags)


def seconds(moment: datetime | None) -> int:
    assert moment is not None
    return int((moment - NOW).total_seconds())


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("out-of-stock", "resource_unavailable"),
        ("quota", "resource_limit_exceeded"),
        ("error", "server_error"),
    ],
)
def test_each_fault_refuses_every_creation(cloud: SimCloud, fault: str, says: str) -> None:
    cloud.configure(Menu.model_validate({"types": {"ccx33": None}, "create": fault}))

    with pytest.raises(CreationRefused, match=says):
        cloud.create(ONE)

    assert listed(cloud).machines == ()


def test_file_of_cloud_may_be_missing_but_not_damaged(cloud: SimCloud) -> None:
    cloud.path.unlink(missing_ok=True)
    assert listed(cloud).machines == ()
    assert not cloud.path.exists()
    cloud.configure(Menu(types=dict(SOLD)))
    machine_id = cloud.create(ONE)
    assert [listed(cloud, fleet).machines for fleet in ("debia", "debian-ci")] == [(), ()]
    assert (cloud.read(machine_id), cloud.read("sim-99")) == (ONE, None)
    cloud.path.write_text('{"format": "fleet-sim-1", "machines": []}')

    listing = cloud.list("debian")

    assert isinstance(listing, Unknown)
    assert tells(listing.unknown, str(cloud.path), "fleet-sim-1", "machines")
    with pytest.raises(SourceUnreachable, match="fleet-sim-1"):
        cloud.create(ONE)


def test_full_disk_is_an_error_without_changes(cloud: SimCloud) -> None:
    cloud.create(ONE)
    before = cloud.path.read_bytes()

    with full_disk(), pytest.raises(SourceUnreachable, match=os.strerror(errno.EFBIG)):
        cloud.create(TWO)

    files = sorted(each.name for each in cloud.path.parent.iterdir())
    assert (cloud.path.read_bytes(), files) == (before, ["sim.json", "sim.json.lock"])


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_menu_has_types_of_fleet_yaml_and_catalogue() -> None:
    sold = {"cores": 2, "memory": "4GiB", "disk": "40GiB", "price": "0.01 EUR/h", "stock": 3}
    provider = {"kind": "sim", "boot": "5s", "types": {"tiny": sold}}
    fleet = a_fleet(
        providers={"desk": provider | {"faults": {"create": "quota"}}}, pools={}, images={}
    )

    menu = menu_of(fleet, "desk")

    assert (menu.boot, menu.create) == (5, "quota")
    assert (menu.types["tiny"], menu.types["ccx33"]) == (3, None)
