"""Facts about machines for `fleet explain`: possible new machines, and existing workers."""

from pydantic import Field

from fleet.model.money import Bill, Rate
from fleet.model.values import Moment, Value
from fleet.schema.pools import Market


class PlaceFacts(Value):
    """A new machine that could serve a request, with its start, duration and cost."""

    pool: str
    type: str
    market: Market
    start: Moment
    end: Moment | None = None
    """Expected end of the run; None if the duration is unknown."""
    seconds: int | None = None
    source: str = ""
    """Origin of the duration on this machine type; empty if stated or not specific to the type."""
    cost: Bill | None = None
    """Bill of the machine until its idle time-out; None if the price is unknown."""
    deadline: int | None = None
    """Maximum run time in seconds; None if unlimited."""
    own_deadline: bool = False
    """True if the deadline is set for this request, not for its whole queue."""
    is_late: bool = False
    """True if the run cannot end on this machine before its deadline."""
    asks: tuple[str, ...] = ()
    """Tags that the machine requires and that an allow-list rule could add to the request."""
    rule: str = ""
    """The entry of `powerful` that adds these tags; empty if the machine fits without a rule."""
    acts_later: bool = False
    """True if the rule affects only later builds, because the queue stored this build's tags."""
    closed: str = ""
    """The reason why fleet creates no such machine now, such as no stock; empty if it can."""
    closed_until: Moment | None = None
    """The time when this reason ends; None if unknown. The start is not earlier."""
    is_chosen: bool = False
    """True if the plan creates this machine for the request."""


class WorkerFacts(Value):
    """The machine of a worker, and the work that runs on the machine."""

    provider: str | None = None
    location: str | None = Field(None, description="The provider's location or region.")
    market: Market | None = None
    cores: int | None = None
    memory: int | None = Field(None, description="MiB.")
    disk: int | None = Field(None, description="MiB.")
    swap: int | None = Field(None, description="MiB.")
    architecture: str | None = None
    created_at: Moment | None = None
    cost_so_far: Rate | None = Field(
        None, description="Bill of the machine since its creation, in whole billing steps."
    )
    task: str | None = None
    package: str | None = Field(None, description="The source package that its work builds.")
    work_since: Moment | None = None
    work_cost: Rate | None = Field(None, description="Cost of its work so far.")
