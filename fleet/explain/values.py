"""This module holds what an answer is: a headline, facts, reasons with their place, ways out."""

from typing import Literal

from fleet.explain.unblock import Suggestion
from fleet.facts.values import Moment, Value
from fleet.tagrules.enforcement import Enforcer

Path = tuple[str | int, ...]


class ExplainedReason(Value):
    """One reason, the key of fleet.yaml that decides it, who enforces it, who can change it."""

    because: str
    path: Path = ()
    place: str = ""
    by: Enforcer | None = None
    who: str = ""


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
    like: str = ""
    """The first request of its signature that fares the same: its suggestions stand there."""
