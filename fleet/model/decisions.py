"""Decisions as data: a code, the pools, the deciding key of fleet.yaml, and figures.

`fleet.words` turns a decision into a sentence. No digest includes the sentence.
"""

from typing import Literal

from pydantic import Field

from fleet.model.values import ForPeople, Moment, Rate, Value, Word, later

Path = tuple[str | int, ...]


class Served(Word):
    """The decision on a pool that fits a request."""

    FITS = "fits"
    SERVES_OTHERS = "serves-others"  # its machines serve requests with a higher rank
    WORKERS_BUSY = "workers-busy"  # a static pool: fleet cannot create further workers


class Unfit(Word):
    """A reason why a pool does not fit a request."""

    QUEUE_NOT_SERVED = "queue-not-served"
    TAG_MISSING = "tag-missing"
    IMAGE_UNPROVEN = "image-unproven"  # tests of its first image version may prove missing tags
    TAG_NOT_BROUGHT = "tag-not-brought"  # its workers require a tag that the request does not have
    TAG_EXCLUSIVE = "tag-exclusive"  # its workers serve only requests that require the tag
    TOO_SMALL = "too-small"
    TAG_HELD = "tag-held"  # a tag of the request is denied or unknown
    ON_DEMAND = "on-demand"  # it creates machines only for requests that require its tags


MISMATCHES = frozenset(
    {
        *(Unfit.TAG_MISSING, Unfit.IMAGE_UNPROVEN, Unfit.TAG_NOT_BROUGHT),
        *(Unfit.TAG_EXCLUSIVE, Unfit.TOO_SMALL),
    }
)
"""Reasons why the tags or sizes of a pool do not match a request."""


LASTING = frozenset(
    {*(MISMATCHES - {Unfit.IMAGE_UNPROVEN}), Unfit.QUEUE_NOT_SERVED, Unfit.ON_DEMAND}
)
"""Reasons for which no pool fits a request before fleet.yaml changes."""


class NoMachineReason(Word):
    """A reason why a pool that fits a request creates no machine for the request in this run."""

    AT_MAX = "at-max"
    AT_MAX_STARTING = "at-max-starting"
    TAG_LIMIT = "tag-limit"
    QUEUE_LIMIT = "queue-limit"
    OWNER_BLOCKED = "owner-blocked"
    TAGGED_FIRST = "tagged-first"  # requests that require its on-demand tag are served first
    BUDGET = "budget"
    CLOSED = "closed"
    UNPUBLISHED = "unpublished"  # no version of its image is published
    DEADLINE = "deadline"
    GUARD = "guard"


ENDED_BY_RUNS = frozenset({NoMachineReason.AT_MAX_STARTING})
"""Reasons that a later run can end without an edit of fleet.yaml."""


class SizeReason(Word):
    """A reason for the current number of machines of a pool."""

    SERVES = "serves"  # its machines serve waiting requests
    COULD_SERVE = "could-serve"  # waiting requests fit the pool
    MIN = "min"
    SPARE = "spare"
    REPLACES_LATER = "replaces-later"
    PAID_HOUR = "paid-hour"
    DEMAND_UNKNOWN = "demand-unknown"
    NO_DEMAND = "no-demand"
    CLOSED = "closed"
    UNPUBLISHED = "unpublished"  # no version of its image is published
    IMAGE = "image"  # its image has a problem
    OPTION_CLOSED = "option-closed"
    REMOVED = "removed"  # fleet.yaml no longer has the pool
    EXPIRED_ONLY = "expired-only"  # `fleet machine delete --expired`, which ignores demand
    REQUESTED_ONLY = "requested-only"  # a user deletes named machines, which ignores demand
    GUARD_WITHHOLDS = "guard-withholds"  # a guard prevents new machines
    GUARD_KEEPS = "guard-keeps"  # a guard prevents deletions


Code = Served | Unfit | NoMachineReason | SizeReason


class DecisionFigures(Value):
    """The figures of a decision. Fields that do not apply to the decision's code are unset."""

    needed: Rate | None = later(None, "The amount of a limit that a further request needs.")
    left: Rate | None = later(None, "The remainder of that limit; None: unknown.")
    unit: str = later("", "Unit of both: `machines or requests`, a currency, or `machine hours`.")
    until: Moment | None = later(None, "When the constraint ends by itself, if that is known.")
    count: int | None = later(None, "Requests or machines, as the code says.")
    waiting: int = later(0, "Requests that wait because a guard withholds their machine.")
    queue: str = later("", "The queue that the pool does not serve.")
    tags: tuple[str, ...] = later((), "The tags and minimums that it is about.")
    has: tuple[str, ...] = later((), "The numbers of the pool's machines that are too small.")
    image: str = later("", "The image without a published version.")
    provider: str = later("", "The provider of the missing version.")
    held: Literal["", "denied", "unknown"] = later("", "State of the held tags.")


NO_FIGURES = DecisionFigures()


class Decision(Value):
    """A decision on requests with equal tags and priority. Several pools may share it."""

    code: Code
    subject: tuple[str, ...] = Field(description="The pools.")
    key: Path = Field((), description="The key of fleet.yaml that decides; `*`: of each pool.")
    figures: DecisionFigures = NO_FIGURES
    message: ForPeople = later("", "The decision on each of the pools in words.")
