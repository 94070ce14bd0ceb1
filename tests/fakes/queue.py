"""The written fakes of the ports Queue and Provider."""

from collections.abc import Mapping
from datetime import datetime

from fleet.model.facts import Demand, Listing, Machine, QueueReading, Request, Unknown, Worker


class FakeQueue:
    """A queue that holds what a test puts into it; `broken` says why it cannot be read."""

    def __init__(
        self, *requests: Request, workers: tuple[Worker, ...] | None = None, broken: str = ""
    ) -> None:
        self.requests = requests
        self.workers = workers
        self.broken = broken

    def read(self, now: datetime) -> QueueReading:
        """Return what waits and who works."""
        if self.broken:
            unknown = Unknown(unknown=self.broken)
            return QueueReading(demand=unknown, workers=None if self.workers is None else unknown)
        demand = Demand(read_at=now, requests=self.requests)
        return QueueReading(demand=demand, workers=self.workers)


class FakeProvider:
    """A provider with the machines that a test puts into it, by fleet."""

    def __init__(
        self,
        now: datetime,
        fleets: Mapping[str, tuple[Machine, ...]] | None = None,
        broken: str = "",
    ) -> None:
        self.now = now
        self.broken = broken
        self.fleets = fleets or {}

    def list(self, fleet: str) -> Listing | Unknown:
        """Return the machines of exactly this fleet."""
        if self.broken:
            return Unknown(unknown=self.broken)
        machines = sorted(self.fleets.get(fleet, ()), key=lambda machine: machine.name)
        return Listing(read_at=self.now, machines=tuple(machines))
