"""The written fake of the ports Registry and Enroller."""

from fleet.errors import WorkerBusy
from fleet.ports import Enrolment, Tell


class FakeEnroller:
    """Remembers who was enrolled; `busy` workers refuse it."""

    def __init__(self, *busy: str) -> None:
        self.running = dict.fromkeys(busy, "90")
        """Worker to the request it runs."""
        self.enrolled: list[Enrolment] = []
        self.tokens: dict[str, str] = {}
        """Worker to the token that it may come with."""
        self.registered: set[str] = set()
        """Workers that the queue listens to."""
        self.drained: list[str] = []

    def enrol(self, enrolment: Enrolment) -> str:
        """Make a worker known and return its token."""
        name = enrolment.worker
        if name in self.running or name in self.registered:
            raise WorkerBusy(f"{name} {self._does(name)}")
        self.enrolled.append(enrolment)
        self.drained = [each for each in self.drained if each != name]
        self.tokens[name] = f"token-of-{name}-{len(self.enrolled)}"
        return self.tokens[name]

    def register(self, worker: str, token: str) -> bool:
        """Have a worker come with a token; False where it is not the one that is waited for."""
        if self.tokens.get(worker) != token:
            return False
        del self.tokens[worker]
        self.registered.add(worker)
        return True

    def _does(self, worker: str) -> str:
        request = self.running.get(worker)
        return f"runs request {request}" if request else "is connected"


class FakeRegistry(FakeEnroller):
    """Remembers who was drained and disabled too; `busy` workers refuse to be disabled."""

    def __init__(self, *busy: str) -> None:
        super().__init__(*busy)
        self.resumed: list[str] = []
        self.disabled: list[str] = []
        self.revoked: list[str] = []
        self.released: list[str] = []
        self.confirmed = 0

    def drain(self, worker: str) -> None:
        """Have the queue give this worker nothing new."""
        self.drained.append(worker)

    def resume(self, worker: str) -> None:
        """Have the queue give this worker work again."""
        self.drained = [each for each in self.drained if each != worker]
        self.resumed.append(worker)

    def disable(self, worker: str) -> None:
        """Switch the worker off for good."""
        if worker in self.running:
            raise WorkerBusy(f"{worker} {self._does(worker)}")
        self._forget(worker)
        self.disabled.append(worker)

    def revoke(self, worker: str) -> None:
        """Take back a worker's token."""
        if worker in self.running or worker in self.registered:
            raise WorkerBusy(f"{worker} has registered after all")
        self._forget(worker)
        self.revoked.append(worker)

    def release(self, worker: str) -> None:
        """Switch off a worker whose machine is gone."""
        self._forget(worker)
        self.running.pop(worker, None)
        self.released.append(worker)

    def confirm(self, tell: Tell) -> None:
        """Note that what was told was looked at again."""
        if self.disabled or self.drained:
            tell("looking again in 12 s")
        self.confirmed += 1

    def _forget(self, worker: str) -> None:
        self.tokens.pop(worker, None)
        self.registered.discard(worker)
