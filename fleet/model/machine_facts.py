"""Facts about machines for `fleet explain`: possible new machines, and existing workers."""

from pydantic import Field

from fleet.model.money import Bill, Rate
from fleet.model.values import Moment, Value
from fleet.schema.pools import Market


class PlaceFacts(Value):
    """A new machine that could serve a request: its start, duration and cost."""

    pool: str
    type: str
    market: Market
    start: Moment
    end: Moment | None = None
    """End of the run; None: the duration is unknown."""
    seconds: int | None = None
    source: str = ""
    """Origin of the duration on this machine type; empty if it is stated, or the general one."""
    cost: Bill | None = None
    """Bill of the machine until its idle time-out; None: the price is unknown."""
    deadline: int | None = None
    """Maximum run time in seconds; None: unlimited."""
    own_deadline: bool = False
    """Whether the deadline is set for this request, not for its whole queue."""
    is_late: bool = False
    """Whether the run cannot end on this machine before its deadline."""
    asks: tuple[str, ...] = ()
    """Tags that the machine requires, and that a rule of the allow-list can add to the request."""
    rule: str = ""
    """The entry of `powerful` that adds these tags; empty if the machine fits without a rule."""
    acts_later: bool = False
    """Whether the rule has effect only on later builds: the queue stored this build's tags."""
    is_chosen: bool = False
    """Whether the plan creates this machine for the request."""


class WorkerFacts(Value):
    """A worker's machine, and the work it runs."""

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
