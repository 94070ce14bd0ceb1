"""The answer of `fleet explain`: a headline, facts, reasons with their places, next steps."""

from typing import Literal

from fleet.explain.unblock import Suggestion
from fleet.explain.what_if import Path
from fleet.model.plan import Bill
from fleet.model.values import Moment, Value
from fleet.tagrules.enforcement import Enforcer


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
    never: bool = False
    """No worker of this fleet can ever run the request."""
    suggestions: tuple[Suggestion, ...] = ()
    """What gets a request served, each verified by a plan, the smallest first."""
    places: tuple[PlaceFacts, ...] = ()
    """Each way to make a machine for a request: start, end and cost there."""
    like: str = ""
    """The first request of the same outcome, which has the suggestions."""
