"""This module is a cloud on this computer whose workers register nowhere but here.

A process that runs is a worker. It says itself that it is busy, by a file `busy` in its home,
and is told by a file `draining` there that nothing new is to be begun.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fleet.errors import WorkerBusy
from fleet.facts import Worker, WorkerState
from fleet.providers.local import HOME, LocalMachines, Record, reaching
from fleet.store.processes import find, is_alive

BUSY = "busy"
DRAINING = "draining"


class LocalWorkers(LocalMachines):
    """Machines on this computer, and the Registry of their workers."""

    def workers(self, machines: Sequence[tuple[Path, Record]]) -> tuple[Worker, ...]:
        """Return the workers on those of these machines that boot."""
        return tuple(_worker(folder, record) for folder, record in machines if record.boots)

    def drain(self, worker: str) -> None:
        """Tell a worker to begin nothing new; what it runs it may end."""
        with self._reached(worker) as (folder, record):
            (folder / HOME / DRAINING).touch()
            self.rewrite(record, draining_since=record.draining_since or self._clock.now())

    def disable(self, worker: str) -> None:
        """Switch a worker off for good; refused while it says that it is busy."""
        with self._reached(worker) as (folder, record):
            if _worker(folder, record).state is WorkerState.BUSY:
                raise WorkerBusy(f"worker {worker} is busy; it was not disabled")
            self.rewrite(record, disabled=True)

    def revoke(self, worker: str) -> None:
        """Switch off the worker of a machine that never booted."""
        with self._reached(worker) as (_, record):
            if record.boots:
                raise WorkerBusy(f"worker {worker} has registered after all; it was not revoked")
            self.rewrite(record, disabled=True)

    def release(self, worker: str) -> None:
        """Switch off a worker; here it is gone with its machine."""

    def pause(self) -> float:
        """Return how long `confirm` waits."""
        return 0.0

    def confirm(self) -> None:
        """See that what was told stands: here nothing undoes it."""

    @contextmanager
    def _reached(self, worker: str) -> Iterator[tuple[Path, Record]]:
        with reaching(f"worker {worker}"):
            found = [each for each in self.records() if each[1].inputs.name == worker]
            if not found:
                raise ValueError(f"no machine of {self.path} is named so")
            yield found[0]


def _worker(folder: Path, record: Record) -> Worker:
    process = find(folder)
    disabled = record.disabled or process is None or not is_alive(process)
    busy = (folder / HOME / BUSY).exists()
    return Worker(
        name=record.inputs.name,
        machine=record.inputs.name,
        pool=record.inputs.labels.get("pool"),
        # A process that has ended does not come back: its worker serves nothing any more.
        state=WorkerState.DISABLED if disabled else WorkerState.BUSY if busy else WorkerState.IDLE,
        draining=record.draining_since is not None,
        since=record.draining_since or record.created_at,
    )
