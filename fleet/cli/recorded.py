"""Read recorded inputs of earlier runs, from a history file or from the store."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from fleet.cli.arguments import argument, moment_of, past_time
from fleet.clock import utc_now
from fleet.errors import WrongUsage
from fleet.model.facts import World
from fleet.queues.recorded import world_of
from fleet.schema.model import Fleet
from fleet.state.history import read_moments

_MIN_TIME = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME = datetime(2200, 1, 1, tzinfo=UTC)


HISTORY = (
    argument(
        "--history",
        dest="world",
        metavar="FILE",
        help="a history of `fleet observe --append` (default: the history in the store)",
    ),
    argument(
        "--from",
        dest="since",
        type=past_time,
        metavar="TIME",
        help="start time, for example 14d or 2026-11-01 (default: first recorded moment)",
    ),
    argument(
        "--to",
        dest="until",
        type=past_time,
        metavar="TIME",
        help="end time (default: last recorded moment)",
    ),
)
"""The arguments that select recorded moments."""


@dataclass(frozen=True)
class RecordedMoments:
    """The recordings of a fleet in a time span; each reading returns the same recordings."""

    fleet: Fleet
    config: str
    """Path of the fleet.yaml."""
    file: str
    """Path of the history; empty for the store."""
    since: datetime | None
    until: datetime | None

    @property
    def name(self) -> str:
        """Return the name of the source: the file, or `the store`."""
        return self.file or "the store"

    def worlds(self) -> Iterator[World]:
        """Yield the recordings by time; raises WrongUsage if one belongs to another fleet."""
        latest: datetime | None = None
        for content in self._contents():
            world = world_of(self.name, content)
            if world.fleet != self.fleet.fleet:
                raise WrongUsage(
                    f"{self.name} was recorded by fleet {world.fleet}, and {self.config} is fleet "
                    f"{self.fleet.fleet}"
                )
            if latest is None or world.time > latest:
                latest = world.time
                yield world

    def _contents(self) -> Iterator[bytes]:
        """Yield the recordings as JSON, oldest first."""
        if self.file:
            return read_moments(self.file, self.since, self.until)
        from fleet.state.store import store_of

        store = store_of(self.fleet, self.config)
        return store.moments(self.since or _MIN_TIME, self.until or _MAX_TIME)


def recorded(args: argparse.Namespace, fleet: Fleet) -> RecordedMoments:
    """Return the recordings that the options of `HISTORY` select."""
    now = utc_now()
    # Set an end, because a run that ends in the meantime adds a moment to the store.
    until = moment_of(args.until, now) or (None if args.world else now)
    since = moment_of(args.since, now)
    return RecordedMoments(fleet, args.file, args.world or "", since, until)
