"""A process of a machine is nobody's child, is told from others, and ends with all it started."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.clouds.local.cloud import LocalMachines
from fleet.model.facts import MachineState
from fleet.state.processes import end, is_alive
from tests.rigs.local_machines import (
    FOREVER,
    NAME,
    a_worker,
    cloud,
    folder,
    listed,
    process_of,
    said,
    states,
    until,
)

__all__ = ["cloud", "folder"]


def test_process_is_detached_in_a_separate_session(folder: Path, cloud: LocalMachines) -> None:
    cloud.create(a_worker())

    pid = process_of(folder).pid
    assert os.getsid(pid) == os.getpgid(pid) == pid
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_machine_with_ended_process_is_stopped(folder: Path, cloud: LocalMachines) -> None:
    machine_id = cloud.create(a_worker())
    os.kill(process_of(folder).pid, signal.SIGKILL)
    until(lambda: states(cloud) == [MachineState.STOPPED])
    cloud.delete(machine_id)

    cloud.create(a_worker("sh", "-c", "echo ready; exit 1"))

    assert said(folder) == ""
    until(lambda: states(cloud) == [MachineState.STOPPED])


@pytest.fixture
def bystander() -> Iterator[int]:
    """Return the number of a process of somebody else, which must live on."""
    with subprocess.Popen(FOREVER, start_new_session=True) as process:
        yield process.pid
        assert process.poll() is None
        process.kill()


def claim(folder: Path, pid: int, *, earlier: int = 0, boot: str = "") -> None:
    """Say in a machine's folder that a process of this number was started there."""
    head, bracket, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
    fields = tail.split()
    fields[19] = str(int(fields[19]) - earlier)
    boot = boot or Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    (folder / "process").write_text(f"{boot}\n{head}{bracket} {' '.join(fields)}\n")


@pytest.mark.parametrize("otherwise", [{"earlier": 1}, {"boot": "an earlier one"}])
def test_reused_process_id_is_not_the_machine(
    folder: Path, cloud: LocalMachines, bystander: int, otherwise: dict[str, object]
) -> None:
    machine_id = cloud.create(a_worker())
    end(process_of(folder), 1)
    claim(folder / NAME, bystander, **otherwise)  # type: ignore[arg-type] # of the parameters

    stopped = states(cloud)
    cloud.delete(machine_id)

    assert stopped == [MachineState.STOPPED]
    assert listed(cloud) == ()


def test_delete_kills_all_child_processes_of_machine(folder: Path, cloud: LocalMachines) -> None:
    script = "setsid sleep infinity & sleep infinity & echo $$ $(jobs -p); echo ready; wait"
    machine_id = cloud.create(a_worker("bash", "-c", script))
    started = [int(pid) for pid in said(folder).split()]

    cloud.delete(machine_id)

    assert len(started) == 3
    assert [pid for pid in started if is_running(pid)] == []
    assert not (folder / NAME).exists()


def test_orphans_of_ended_process_are_killed_on_delete(folder: Path, cloud: LocalMachines) -> None:
    machine_id = cloud.create(a_worker("bash", "-c", "sleep infinity & echo $!; echo ready"))
    orphan = int(said(folder))
    until(lambda: states(cloud) == [MachineState.STOPPED])

    cloud.delete(machine_id)

    assert not is_running(orphan)


def test_process_that_ignores_termination_is_killed(folder: Path, cloud: LocalMachines) -> None:
    script = "trap '' TERM; echo ready; while true; do sleep 99; done"
    cloud.create(a_worker("sh", "-c", script))
    assert said(folder) == ""

    end(process_of(folder), 0.1)

    assert not is_alive(process_of(folder))


def test_process_is_terminated_before_it_is_killed(folder: Path, cloud: LocalMachines) -> None:
    script = "trap 'echo goodbye; exit' TERM; echo ready; while true; do sleep 0.01; done"
    cloud.create(a_worker("sh", "-c", script))
    assert said(folder) == ""

    end(process_of(folder), 10)

    assert (folder / NAME / "log").read_text().splitlines()[-1] == "goodbye"


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
