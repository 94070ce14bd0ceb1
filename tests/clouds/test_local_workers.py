"""Where no queue registers workers, a process on this computer is one, and is told here to go."""

from pathlib import Path

import pytest

from fleet.clouds.local.cloud import LocalWorkers
from fleet.errors import SourceUnreachable, WorkerBusy
from fleet.model.facts import Listing, Worker, WorkerState
from fleet.schema.model import Faults
from fleet.state.processes import end
from tests.builders import NOW
from tests.fakes.engine import FixedClock
from tests.rigs.local_machines import ENVIRONMENT, NAME, a_worker, folder, process_of

__all__ = ["folder"]


@pytest.fixture
def cloud(folder: Path) -> LocalWorkers:
    return LocalWorkers(folder, FixedClock(NOW), Faults(), ENVIRONMENT)


def workers(cloud: LocalWorkers) -> tuple[Worker, ...]:
    listing = cloud.list("debian")
    assert isinstance(listing, Listing), listing
    assert listing.workers is not None
    return listing.workers


def test_machine_that_never_boots_has_no_worker_after_revoke(
    folder: Path,
) -> None:
    faults = Faults(never_boots=["small"])
    cloud = LocalWorkers(folder, FixedClock(NOW), faults, ENVIRONMENT)
    cloud.create(a_worker())

    cloud.revoke(NAME)

    assert workers(cloud) == ()


def test_process_is_a_worker_until_it_ends(cloud: LocalWorkers, folder: Path) -> None:
    cloud.create(a_worker())
    idle = Worker(name=NAME, machine=NAME, pool="builders", state=WorkerState.IDLE, since=NOW)
    assert workers(cloud) == (idle,)

    cloud.drain(NAME)
    cloud.drain(NAME)
    assert [worker.draining for worker in workers(cloud)] == [True]
    assert (folder / NAME / "home/draining").exists()

    (folder / NAME / "home/busy").touch()
    with pytest.raises(WorkerBusy, match=rf"{NAME}.*busy"):
        cloud.disable(NAME)
    with pytest.raises(WorkerBusy, match="not revoked"):
        cloud.revoke(NAME)
    assert [worker.state for worker in workers(cloud)] == [WorkerState.BUSY]

    end(process_of(folder), 1)
    assert [worker.state for worker in workers(cloud)] == [WorkerState.DISABLED]


def test_disabled_worker_serves_no_request(cloud: LocalWorkers) -> None:
    cloud.create(a_worker())

    cloud.disable(NAME)

    assert [worker.state for worker in workers(cloud)] == [WorkerState.DISABLED]
    with pytest.raises(SourceUnreachable, match="debian-builders-0009"):
        cloud.drain("debian-builders-0009")
