"""Facts about machines for explanations: places of new ones, and existing workers."""

from pydantic import Field

from fleet.model.money import Bill, Rate
from fleet.model.values import Moment, Value
from fleet.schema.pools import Market


class PlaceFacts(Value):
    """A new machine that could run a request: start, duration and cost."""

    pool: str
    type: str
    market: Market
    start: Moment
    end: Moment | None = None
    """None: the duration is unknown."""
    seconds: int | None = None
    source: str = ""
    """Source of its duration there; empty if stated or general."""
    cost: Bill | None = None
    """Bill of the machine until its idle time-out; None: its price is unknown."""
    deadline: int | None = None
    """Maximum run time in seconds; None: unlimited."""
    own_deadline: bool = False
    """The deadline is the request's own, not its queue's."""
    is_late: bool = False
    """It cannot end before its deadline there."""
    asks: tuple[str, ...] = ()
    """Tags that the place requires and that a rule of the allow-list may give."""
    rule: str = ""
    """The entry of `powerful` that gives them; empty if the place fits."""
    acts_later: bool = False
    """The rule acts only on later builds: the queue stored the tags of this one."""
    is_chosen: bool = False
    """The plan creates its machine there."""


class WorkerFacts(Value):
    """A worker's machine and its work."""

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
