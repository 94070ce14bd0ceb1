"""What runs of `fleet apply` observed of a fleet, kept as one sample each: its recent history.

What a run could not read is None, never zero.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from pydantic import Field

from fleet.model.values import Moment, Value

NANO = 10**9


class Figures(NamedTuple):
    """Machines by state, waiting requests and money of a pool, or of a fleet, at one moment."""

    busy: int | None
    idle: int | None
    starting: int | None
    other: int | None
    waiting: int | None
    """Requests that wait and that the pool fits; of a fleet all that wait."""
    nanos: int | None
    """Money per hour, in billionths of the fleet's currency."""


class Sample(Value):
    """What one run observed, before it changed anything."""

    at: Moment
    fleet: Figures
    pools: dict[str, Figures] = Field(
        default_factory=dict, description="Pool to its figures; one that did not exist is absent."
    )


class Observed(NamedTuple):
    """All that one run observed, to be kept."""

    at: datetime
    world: str
    """As JSON."""
    keep: timedelta
    """What is older is dropped; none: nothing is kept."""


class LastRun(NamedTuple):
    """The latest run of `fleet apply` that carried a plan out to its end."""

    ended: datetime
    succeeded: bool
    """Whether nothing failed and nothing was refused."""
