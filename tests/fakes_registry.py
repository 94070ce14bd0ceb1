"""This module holds the written fake of the port Registry."""

from fleet.errors import WorkerBusy


class FakeRegistry:
    """Remembers who was drained and disabled; `busy` workers refuse to be disabled."""

    def __init__(self, *busy: str) -> None:
        self.busy = set(busy)
        self.drained: list[str] = []
        self.disabled: list[str] = []
        self.revoked: list[str] = []

    def drain(self, worker: str) -> None:
        """Have the queue give this worker nothing new."""
        self.drained.append(worker)

    def disable(self, worker: str) -> None:
        """Switch the worker off for good."""
        if worker in self.busy:
            raise WorkerBusy(f"{worker} runs request 90")
        self.disabled.append(worker)

    def revoke(self, worker: str) -> None:
        """Take back a worker's token."""
        if worker in self.busy:
            raise WorkerBusy(f"{worker} has registered after all")
        self.revoked.append(worker)
