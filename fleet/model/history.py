"""The recent history of a fleet: one sample per run of `fleet apply`.

An unreadable figure is None, never zero.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import Field

from fleet.model.values import Moment, Value

NANO = 10**9


class MomentFigures(NamedTuple):
    """Machines by state, waiting requests and money of a pool, or of a fleet, at one moment."""

    busy: int | None
    idle: int | None
    starting: int | None
    other: int | None
    waiting: int | None
    """Waiting requests that the pool fits; for a fleet, all waiting requests."""
    nanos: int | None
    """Money per hour, in billionths of the fleet's currency."""


class RunSample(Value):
    """The figures that one run observed before its changes."""

    at: Moment
    fleet: MomentFigures
    pools: dict[str, MomentFigures] = Field(
        default_factory=dict, description="Pool to its figures; one that did not exist is absent."
    )


class RunObservation(NamedTuple):
    """The observations of one run, for the store."""

    at: datetime
    world: str
    """The world as JSON."""
    keep: timedelta
    """Maximum age of stored samples; zero: store no samples."""


class LastRun(NamedTuple):
    """The latest run of `fleet apply` that finished its plan."""

    ended: datetime
    succeeded: bool
    """Whether no action failed or was refused."""
