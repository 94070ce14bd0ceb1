"""The simulated cloud behaves as a cloud does: stock, boot times, names, faults, a file."""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.clouds.sim.machines import Menu, SimCloud, menu_of
from fleet.errors import CreationRefused, SourceUnreachable, WorkerBusy
from fleet.model.facts import Listing, MachineState, Unknown, Worker, WorkerState
from tests.builders import NOW, a_fleet
from tests.builders.sentences import tells
from tests.fakes.engine import FixedClock
from tests.ports.engines import a_sim_worker

ONE, TWO = a_sim_worker("debian-builders-0001"), a_sim_worker("debian-builders-0002")


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(NOW)


@pytest.fixture
def cloud(tmp_path: Path, clock: FixedClock) -> SimCloud:
    cloud = SimCloud(tmp_path / "sim.json", clock)
    cloud.configure(Menu(boot=60, types={"ccx33": 2, "ccx63": None}, never_boots=("ccx63",)))
    return cloud


def listed(cloud: SimCloud, fleet: str = "debian") -> Listing:
    listing = cloud.list(fleet)
    assert isinstance(listing, Listing), listing
    return listing


def workers(cloud: SimCloud) -> tuple[Worker, ...]:
    return listed(cloud).workers or ()


def test_new_machine_is_starting_without_worker(cloud: SimCloud) -> None:
    cloud.create(ONE)

    (machine,) = listed(cloud).machines
    assert (machine.name, machine.pool, machine.type) == (ONE.name, "builders", "ccx33")
    assert (machine.state, machine.created_at) == (MachineState.STARTING, NOW)
    assert workers(cloud) == ()


def test_worker_registers_when_its_machine_has_booted(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(seconds=60)

    (worker,) = workers(cloud)
    assert (worker.name, worker.machine, worker.pool) == (ONE.name, ONE.name, "builders")
    assert (worker.state, worker.since) == (WorkerState.IDLE, NOW + timedelta(seconds=60))
    assert listed(cloud).machines[0].state is MachineState.RUNNING


def test_machine_of_a_type_that_never_boots_has_no_worker(
    cloud: SimCloud, clock: FixedClock
) -> None:
    cloud.create(a_sim_worker("debian-builders-0001", type="ccx63"))
    clock.moment += timedelta(days=1)

    assert workers(cloud) == ()
    assert listed(cloud).machines[0].state is MachineState.STARTING


def test_worker_reports_the_tags_of_its_settings(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(
        a_sim_worker("debian-builders-0001", settings={"provides": "b a", "requires": "c"})
    )
    clock.moment += timedelta(seconds=60)

    (worker,) = workers(cloud)
    assert (worker.provides, worker.requires) == (("a", "b"), ("c",))


def test_assigned_worker_is_busy_since_assignment(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(seconds=90)

    cloud.assign(ONE.name, "request-7")

    (worker,) = workers(cloud)
    assert (worker.state, worker.running) == (WorkerState.BUSY, "request-7")
    assert worker.since == NOW + timedelta(seconds=90)


def test_worker_counts_the_requests_that_it_has_finished(
    cloud: SimCloud, clock: FixedClock
) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(seconds=90)
    for request in ("7", "7", "8", None, "9"):
        cloud.assign(ONE.name, request)

    assert [worker.uses for worker in workers(cloud)] == [2]


def test_busy_worker_is_not_disabled(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(seconds=60)
    cloud.assign(ONE.name, "request-7")

    with pytest.raises(WorkerBusy, match="request-7"):
        cloud.disable(ONE.name)

    assert workers(cloud)[0].state is WorkerState.BUSY


def test_drained_and_disabled_states_are_persistent(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(seconds=60)

    cloud.drain(ONE.name)
    cloud.disable(ONE.name)

    (worker,) = workers(SimCloud(cloud.path, clock))
    assert (worker.draining, worker.state) == (True, WorkerState.DISABLED)


def test_idle_worker_is_draining_since_its_drain(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(hours=2)
    cloud.drain(ONE.name)
    clock.moment += timedelta(minutes=5)
    cloud.drain(ONE.name)

    (worker,) = workers(cloud)

    assert (worker.draining, worker.since) == (True, NOW + timedelta(hours=2))


def test_draining_worker_is_busy_since_it_took_its_work(
    cloud: SimCloud, clock: FixedClock
) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(hours=1)
    cloud.assign(ONE.name, "7")
    clock.moment += timedelta(hours=1)
    cloud.drain(ONE.name)

    (worker,) = workers(cloud)

    assert (worker.running, worker.since) == ("7", NOW + timedelta(hours=1))


def test_draining_worker_is_idle_since_the_end_of_its_work(
    cloud: SimCloud, clock: FixedClock
) -> None:
    cloud.create(ONE)
    cloud.assign(ONE.name, "7")
    clock.moment += timedelta(hours=1)
    cloud.drain(ONE.name)
    clock.moment += timedelta(hours=1)
    cloud.assign(ONE.name, None)

    (worker,) = workers(cloud)

    assert (worker.draining, worker.uses, worker.since) == (True, 1, NOW + timedelta(hours=2))


def test_disabled_worker_has_time_of_disable(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(hours=1)
    cloud.drain(ONE.name)
    clock.moment += timedelta(hours=1)
    cloud.disable(ONE.name)

    (worker,) = workers(cloud)

    assert (worker.state, worker.since) == (WorkerState.DISABLED, NOW + timedelta(hours=2))


def test_booted_machine_has_no_port_check(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(hours=1)

    (machine,) = listed(cloud).machines

    assert machine.state is MachineState.RUNNING
    assert (machine.misses, machine.was_ready, machine.looked_since) == (None, False, None)


def test_worker_with_revoked_token_never_registers(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)

    cloud.revoke(ONE.name)
    clock.moment += timedelta(hours=1)

    assert workers(cloud) == ()
    assert [machine.name for machine in listed(cloud).machines] == [ONE.name]


def test_worker_that_has_registered_keeps_its_token(cloud: SimCloud, clock: FixedClock) -> None:
    cloud.create(ONE)
    clock.moment += timedelta(seconds=60)

    with pytest.raises(WorkerBusy, match="not revoked"):
        cloud.revoke(ONE.name)

    assert [worker.name for worker in workers(cloud)] == [ONE.name]


def test_spot_market_has_a_separate_stock(cloud: SimCloud) -> None:
    cloud.configure(Menu(types={"ccx33": None, "ccx33/spot": 1}))
    one, two = (each.altered(settings={"market": "spot"}) for each in (ONE, TWO))
    cloud.create(one)

    with pytest.raises(CreationRefused, match="resource_unavailable: ccx33/spot: 1 of 1 exist"):
        cloud.create(two)

    assert cloud.create(TWO)


def test_type_not_sold_on_spot_market_is_refused(cloud: SimCloud) -> None:
    with pytest.raises(CreationRefused, match="ccx33/spot"):
        cloud.create(ONE.altered(settings={"market": "spot"}))


def test_missing_worker_cannot_be_drained(cloud: SimCloud) -> None:
    with pytest.raises(SourceUnreachable, match="nobody"):
        cloud.drain("nobody")


def test_second_creation_with_same_name_is_refused(cloud: SimCloud) -> None:
    cloud.create(ONE)

    with pytest.raises(CreationRefused, match="uniqueness_error"):
        cloud.create(ONE)


def test_stock_is_exhausted_and_restored(cloud: SimCloud) -> None:
    first = cloud.create(ONE)
    cloud.create(TWO)
    three = a_sim_worker("debian-builders-0003")

    with pytest.raises(CreationRefused, match="resource_unavailable: ccx33: 2 of 2 exist"):
        cloud.create(three)
    cloud.delete(first)

    assert cloud.create(three) == "sim-3"


def test_unsold_type_is_refused(cloud: SimCloud) -> None:
    with pytest.raises(CreationRefused, match=r"big.*ccx33.*ccx63"):
        cloud.create(a_sim_worker("debian-builders-0001", type="big"))


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


def test_another_fleets_machines_are_not_listed(cloud: SimCloud) -> None:
    cloud.create(ONE)

    assert listed(cloud, "debia").machines == ()
    assert listed(cloud, "debian-ci").machines == ()


def test_delete_is_idempotent(cloud: SimCloud) -> None:
    machine_id = cloud.create(ONE)

    cloud.delete(machine_id)
    cloud.delete(machine_id)

    assert listed(cloud).machines == ()


def test_machine_is_read_by_id(cloud: SimCloud) -> None:
    machine_id = cloud.create(ONE)

    assert cloud.read(machine_id) == ONE
    assert cloud.read("sim-99") is None


def test_missing_file_is_an_empty_cloud(tmp_path: Path, clock: FixedClock) -> None:
    cloud = SimCloud(tmp_path / "none.json", clock)

    assert listed(cloud).machines == ()
    assert list(tmp_path.iterdir()) == []


def test_damaged_file_is_unknown_on_list_and_error_on_create(cloud: SimCloud) -> None:
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

    assert cloud.path.read_bytes() == before
    assert sorted(each.name for each in cloud.path.parent.iterdir()) == [
        "sim.json",
        "sim.json.lock",
    ]


def test_menu_has_types_of_fleet_yaml_and_catalogue() -> None:
    sold = {"cores": 2, "memory": "4GiB", "disk": "40GiB", "price": "0.01 EUR/h", "stock": 3}
    provider = {
        "kind": "sim",
        "boot": "5s",
        "types": {"tiny": sold},
        "faults": {"create": "quota"},
    }
    fleet = a_fleet(providers={"desk": provider}, pools={}, images={})

    menu = menu_of(fleet, "desk")

    assert (menu.boot, menu.create) == (5, "quota")
    assert menu.types["tiny"] == 3
    assert menu.types["ccx33"] is None


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
