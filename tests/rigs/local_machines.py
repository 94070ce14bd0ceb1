"""What tests of machines on this computer share; what they start, they end."""

import os
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from fleet.clouds.local.cloud import LocalMachines
from fleet.model.facts import Listing, Machine, MachineState, WorkerInputs
from fleet.schema.model import Faults
from fleet.state.processes import Process, end, find
from tests.builders import NOW
from tests.fakes.engine import FixedClock
from tests.ports.engines import a_sim_worker

NAME = "debian-builders-0001"
FOREVER = ("sleep", "infinity")
ENVIRONMENT = {"PATH": os.environ["PATH"]}


def a_local_cloud(folder: Path, now: datetime = NOW, **faults: object) -> LocalMachines:
    """Return machines that are processes, with no more in their environment than they need."""
    return LocalMachines(folder, FixedClock(now), Faults.model_validate(faults), ENVIRONMENT)


def a_worker(*run: str, name: str = NAME, type: str = "small") -> WorkerInputs:  # noqa: A002 - a worker's own word
    """Return what a machine is made from that runs this, by default for ever."""
    return a_sim_worker(name, type=type, settings={"run": shlex.join(run or FOREVER)})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "machines"
    yield folder
    end_machines(folder)


def end_machines(folder: Path) -> None:
    """End the processes of all machines in and under a folder."""
    for place in folder.rglob("process"):
        if (process := find(place.parent)) is not None:
            end(process, 0.2)


def process_of(folder: Path, name: str = NAME) -> Process:
    process = find(folder / name)
    assert process is not None
    return process


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until a condition holds; a process tells nobody when it has come that far."""
    late = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < late, "it never came to pass"
        pause.wait(0.01)


@pytest.fixture
def cloud(folder: Path) -> LocalMachines:
    """Return the machines in that folder, of which there are none so far."""
    return a_local_cloud(folder)


def listed(cloud: LocalMachines, fleet: str = "debian") -> tuple[Machine, ...]:
    """Return the machines of a fleet."""
    listing = cloud.list(fleet)
    assert isinstance(listing, Listing), listing
    return listing.machines


def states(cloud: LocalMachines) -> list[MachineState]:
    """Return the states of the machines, sorted by name."""
    return [machine.state for machine in listed(cloud)]


def said(folder: Path, name: str = NAME) -> str:
    """Return what the process of a machine has printed, complete."""
    log = folder / name / "log"
    until(lambda: log.read_text().endswith("ready\n"))
    return log.read_text().removesuffix("ready\n")
