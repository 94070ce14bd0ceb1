"""This module holds the written fake of the ports Registry and Enroller."""

from fleet.errors import WorkerBusy
from fleet.ports import Enrolment


class FakeEnroller:
    """Remembers who was enrolled; `busy` workers refuse it."""

    def __init__(self, *busy: str) -> None:
        self.busy = set(busy)
        self.enrolled: list[Enrolment] = []

    def enrol(self, enrolment: Enrolment) -> str:
        """Make a worker known and return its token."""
        if enrolment.worker in self.busy:
            raise WorkerBusy(f"{enrolment.worker} runs request 90")
        self.enrolled.append(enrolment)
        return f"token-of-{enrolment.worker}-{len(self.enrolled)}"


class FakeRegistry(FakeEnroller):
    """Remembers who was drained and disabled too; `busy` workers refuse to be disabled."""

    def __init__(self, *busy: str) -> None:
        super().__init__(*busy)
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
