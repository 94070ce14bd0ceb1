"""The records of runs of `fleet apply`: results per pool, samples of figures, counts per month.

A figure that could not be read is None, never zero.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from pydantic import Field

from fleet.model.values import Moment, Value, later

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


class StackOutcome(Value):
    """The results of the actions in one pool."""

    pool: str
    result: Literal["applied", "unchanged", "failed", "refused"]
    created: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    deleting: tuple[str, ...] = later(
        (), "Machines whose deletion was accepted; their provider lists them still."
    )
    forgotten: tuple[str, ...] = Field(
        (), description="Machines removed from its stack because they are gone."
    )
    cleaned: tuple[str, ...] = later(
        (), "Machines that never existed: what their creation left was removed."
    )
    adopted: tuple[str, ...] = Field(
        (), description="Existing machines that were added to its stack."
    )
    error: str = ""
    retry_at: Moment | None = later(
        None, "When creations that failed are tried again, after a back-off."
    )

    @property
    def is_touched(self) -> bool:
        """Return whether a machine of this pool was changed or adopted."""
        return bool(self.done or self.adopted)

    @property
    def done(self) -> frozenset[str]:
        """Return the names of the workers whose actions succeeded."""
        removed = (*self.deleted, *self.deleting, *self.forgotten, *self.cleaned)
        return frozenset((*self.created, *self.drained, *removed))


class Outcome(Value):
    """The result of a run of `fleet apply`."""

    plan: str = Field(description="Digest of the plan.")
    stacks: tuple[StackOutcome, ...] = ()
    released: tuple[str, ...] = Field((), description="Workers without a machine switched off.")
    resumed: tuple[str, ...] = later((), "Workers that get work again after a hold.")
    promoted: tuple[str, ...] = Field(
        (), description="Promoted versions of images, as IMAGE VERSION."
    )
    refused: tuple[str, ...] = Field((), description="Reason why not all changes were applied.")
    left: tuple[str, ...] = Field(
        (), description="Pools that were not started because the run was stopped."
    )
    under_way: tuple[str, ...] = Field(
        (), description="Pools still in progress; a later outcome has the result."
    )
    rules: tuple[str, ...] = Field((), description="Rules that were delivered to queues.")
    outdated: tuple[str, ...] = Field(
        (),
        description="Differences from the saved plan to apply; in that case "
        "no part of it was applied.",
    )

    @property
    def exit_code(self) -> int:
        """Return 0 if all actions succeeded, 1 if failed, 4 if refused, 5 if partly applied."""
        results = {stack.result for stack in self.stacks}
        if "failed" in results:
            return 5 if any(stack.is_touched for stack in self.stacks) else 1
        return 4 if self.refused or self.outdated or "refused" in results else 0
