"""The recent history of a fleet: samples of each run of `fleet apply`, and counts per month.

A figure that could not be read is None, never zero.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from pydantic import Field

from fleet.model.values import Moment, Value

TallyKind = Literal[
    "run",
    "package",
    "idle",
    "bound",
    "rule",
    "optimum",
    "gap",
    "wait",
    "unseen",
    "powerful",
    "needless",
]


class Tally(Value):
    """A figure of a month. The store adds up figures with equal month, kind and name."""

    month: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}$")
    kind: TallyKind
    name: str = ""
    count: int = 0
    seconds: int = 0
    nanos: int = Field(0, description="Money, in billionths of the fleet's currency.")


class Counted(NamedTuple):
    """The figures that a run adds to its month, and the waiting requests."""

    tallies: tuple[Tally, ...]
    waiting: Mapping[str, datetime]
    """Id of each waiting request to the start of its wait."""


NANO = 10**9


class MomentFigures(NamedTuple):
    """Machines by state, waiting requests and money of a pool or of the fleet, at one time."""

    busy: int | None
    idle: int | None
    starting: int | None
    other: int | None
    waiting: int | None
    """Waiting requests that fit the pool; for the fleet, all waiting requests."""
    nanos: int | None
    """Money per hour, in billionths of the fleet's currency."""


class RunSample(Value):
    """The figures that a run observed before it changed anything, or the figures at its end."""

    at: Moment
    fleet: MomentFigures
    pools: dict[str, MomentFigures] = Field(
        default_factory=dict, description="Pool to its figures; one that did not exist is absent."
    )


class RunObservation(NamedTuple):
    """The world and figures that a run observed, in stored form."""

    at: datetime
    world: str
    """The world in JSON."""
    keep: timedelta
    """Maximum age of stored samples; zero if no sample is to be stored."""


class LastRun(NamedTuple):
    """The latest run of `fleet apply` that executed its whole plan."""

    ended: datetime
    succeeded: bool
    """True if all actions succeeded."""
