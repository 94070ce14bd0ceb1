"""What `fleet explain` answers: a headline, facts, reasons with their places, next steps."""

from typing import Literal

from pydantic import Field

from fleet.model.plan import Bill, Rate
from fleet.model.values import Moment, Value
from fleet.schema.findings import Path
from fleet.schema.pools import Market
from fleet.tagrules.sources import Enforcer


class ExplainedReason(Value):
    """One reason, the key of fleet.yaml that decides it, who enforces it, who can change it."""

    because: str
    path: Path = ()
    place: str = ""
    by: Enforcer | None = None
    who: str = ""


class PlaceFacts(Value):
    """A new machine that could run a request: when, how long, for what money."""

    pool: str
    type: str
    market: str
    start: Moment
    end: Moment | None = None
    """None where the duration is unknown."""
    seconds: int | None = None
    source: str = ""
    """Source of its duration there; empty where it is stated or general."""
    cost: Bill | None = None
    """What the machine is billed until its idle time-out; None where its price is unknown."""
    deadline: int | None = None
    """Seconds that it may run; None: any time."""
    own_deadline: bool = False
    """The deadline is the request's own, not its queue's."""
    is_late: bool = False
    """It cannot end before its deadline there."""
    asks: tuple[str, ...] = ()
    """It fits only with these tags, which a rule of the allow-list may give."""
    rule: str = ""
    """The entry of `powerful` that gives them; empty where it fits."""
    acts_later: bool = False
    """Such a rule acts on later builds: the queue stored the tags of this one."""
    is_chosen: bool = False
    """The plan creates its machine there."""


class Wait(Value):
    """What to wait for, and until when."""

    runs: int = 0
    """So many runs of fleet apply from now, each with its machines up."""
    workers: tuple[str, ...] = ()
    """Busy workers whose work has to end."""
    until: Moment | None = None
    """The expected moment; None where the end of their work is unknown."""
    start: Moment | None = None
    """When the request is expected to start on what the awaited run makes."""
    assumed: Moment | None = None
    """The moment if work of unknown duration takes an hour; None where the durations are known."""


class Change(Value):
    """One key of fleet.yaml, and what to write there."""

    path: Path
    old: str
    new: str
    yaml: str
    """What to merge into the file: from its top, or within the entry of a list."""
    place: str = ""


class Suggestion(Value):
    """Something that gets a request served: edits of fleet.yaml, what to wait for, or both."""

    sentence: str
    changes: tuple[Change, ...] = ()
    asks: tuple[str, ...] = ()
    """Tags that the request would have to ask for too."""
    wait: Wait | None = None
    harms: tuple[str, ...] = ()
    """Requests that are served now and would wait then."""


class Explanation(Value):
    """What `fleet explain` answers."""

    kind: Literal["request", "pool", "worker"]
    name: str
    headline: str
    facts: tuple[str, ...] = ()
    reasons: tuple[ExplainedReason, ...] = ()
    next_steps: tuple[str, ...] = ()
    expected: Moment | None = None
    """When a request is expected to start; None where unknown."""
    assumed: Moment | None = None
    """When it would start if work of unknown duration took an hour, where only that is unknown."""
    never: bool = False
    """No worker of this fleet can ever run the request."""
    suggestions: tuple[Suggestion, ...] = ()
    """What gets a request served, each verified by a plan, the smallest first."""
    places: tuple[PlaceFacts, ...] = ()
    """Each new machine that could run a request, or could by one more rule of the allow-list."""
    currency: str = ""
    """Of these costs."""
    like: str = ""
    """The first request of the same outcome, which has the suggestions."""


class Group(Value):
    """Requests of one signature with the same outcome, in the order of service."""

    signature: str
    queue: str
    required: tuple[str, ...]
    priority: int
    verdict: str
    """Their outcome in words."""
    requests: tuple[Explanation, ...]
    """The answer about each; only the first has suggestions, the others name it in `like`."""


class Everything(Value):
    """What `fleet explain request --all` answers."""

    fleet: str
    groups: tuple[Group, ...]


class EachRequest(Value):
    """The same for programs: one answer for each request."""

    fleet: str
    requests: tuple[Explanation, ...]


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
        None, description="Billed for the machine since its creation, whole steps counted."
    )
    task: str | None = None
    package: str | None = Field(None, description="The source package that its work builds.")
    work_since: Moment | None = None
    work_cost: Rate | None = Field(None, description="What its work has cost so far.")
