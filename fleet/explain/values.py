"""This module holds what an answer is: a headline, facts, reasons with their place, ways out."""

from typing import Literal

from fleet.explain.unblock import Suggestion
from fleet.model.plan import Bill
from fleet.model.values import Moment, Value
from fleet.tagrules.enforcement import Enforcer

Path = tuple[str | int, ...]


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
    """None where nothing says how long the request runs."""
    seconds: int | None = None
    source: str = ""
    """What its time there was derived from; empty where it is stated, or is that of anywhere."""
    cost: Bill | None = None
    """What the machine is billed until its idle time-out; None where nobody knows its price."""
    deadline: int | None = None
    """Seconds that it may run; None: any time."""
    own_deadline: bool = False
    """That is the request's own, and not that of its queue."""
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
    """When a request is expected to start; None where that is not known."""
    never: bool = False
    """No worker of this fleet can ever run the request."""
    suggestions: tuple[Suggestion, ...] = ()
    """What gets a request served, each planned again, the smallest first."""
    places: tuple[PlaceFacts, ...] = ()
    """Each way to make a machine for a request: start, end and cost there."""
    like: str = ""
    """The first request of its signature that fares the same: its suggestions stand there."""
