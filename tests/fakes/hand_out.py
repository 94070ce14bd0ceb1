"""A hand-out of machines to tickets that gives none."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from fleet.apply.satellites import MachineRecords, SeenRun, TicketSources
from fleet.model.facts import Listing, QueueReading, Unknown, World
from fleet.model.plan import Plan
from fleet.ports import PoolExecutor, Tell
from fleet.schema.model import Fleet


class FakeHandOut:
    """A run without tickets."""

    def hand_out_all(
        self,
        fleet: Fleet,  # noqa: ARG002 - the port's own argument
        world: World,
        sources: TicketSources,  # noqa: ARG002 - same
        tell: Tell,  # noqa: ARG002 - same
        note: Tell,  # noqa: ARG002 - same
    ) -> World:
        return world

    def hand_out_again(
        self,
        seen: SeenRun,  # noqa: ARG002 - same
        executor: PoolExecutor,  # noqa: ARG002 - same
        now: datetime,  # noqa: ARG002 - same
        tell: Tell,  # noqa: ARG002 - same
        note: Tell,  # noqa: ARG002 - same
    ) -> bool:
        return False

    def note_waits(self, fleet: Fleet, world: World, plan: Plan, sources: TicketSources) -> None:
        pass

    def with_forgotten(
        self,
        fleet: Fleet,  # noqa: ARG002 - same
        queues: Mapping[str, QueueReading],  # noqa: ARG002 - same
        listings: Mapping[str, Listing | Unknown],  # noqa: ARG002 - same
        since: Mapping[str, datetime | None],  # noqa: ARG002 - same
        records: MachineRecords,  # noqa: ARG002 - same
    ) -> Iterable[tuple[str, QueueReading]]:
        return ()
