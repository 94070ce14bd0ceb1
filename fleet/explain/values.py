"""Values of `fleet explain`: a headline, facts, reasons with their places, next steps."""

from typing import Literal

from fleet.model.decisions import Decision
from fleet.model.machine_facts import PlaceFacts
from fleet.model.values import Moment, Value, later
from fleet.schema.findings import Path
from fleet.tagrules.sources import Enforcer


class ExplainedReason(Value):
    """One reason, the key of fleet.yaml that decides it, its enforcer and the person to ask."""

    because: str
    path: Path = ()
    place: str = ""
    by: Enforcer | None = None
    who: str = ""
    decisions: tuple[Decision, ...] = later((), "The same as data, of a reason about a pool.")


class AwaitedEvent(Value):
    """The awaited event or moment."""

    runs: int = 0
    """Runs of fleet apply from now, each with its machines up."""
    workers: tuple[str, ...] = ()
    """Busy workers whose work has to end."""
    until: Moment | None = None
    """The expected moment; None: the end of the work is unknown."""
    start: Moment | None = None
    """The expected start of the request on the awaited worker."""
    assumed: Moment | None = None
    """The moment if work of unknown duration takes an hour; None: the durations are known."""


class KeyChange(Value):
    """One key of fleet.yaml and its new value."""

    path: Path
    old: str
    new: str
    yaml: str
    """YAML to merge into the file: from its top, or within the entry of a list."""
    place: str = ""


class Suggestion(Value):
    """A way to get a request served: edits of fleet.yaml, a wait, or both."""

    sentence: str
    changes: tuple[KeyChange, ...] = ()
    asks: tuple[str, ...] = ()
    """Tags that the request would have to require too."""
    wait: AwaitedEvent | None = None
    harms: tuple[str, ...] = ()
    """Requests that are served now and would wait after the change."""
    lifts_limit: bool = False
    """The change raises a limit or a budget that the team set itself: the last choice."""


class Explanation(Value):
    """The result of `fleet explain`."""

    kind: Literal["request", "pool", "worker", "image", "rule", "tag"]
    name: str
    headline: str
    facts: tuple[str, ...] = ()
    reasons: tuple[ExplainedReason, ...] = ()
    next_steps: tuple[str, ...] = ()
    expected: Moment | None = None
    """The expected start of a request; None: unknown."""
    assumed: Moment | None = None
    """The start if work of unknown duration took an hour, if only that is unknown."""
    never: bool = False
    """No worker of this fleet can ever run the request."""
    suggestions: tuple[Suggestion, ...] = ()
    """Ways to get a request served, each verified by a plan, the smallest first."""
    places: tuple[PlaceFacts, ...] = ()
    """New machines that could run a request, now or with an additional rule of the allow-list."""
    currency: str = ""
    """Currency of the costs."""
    like: str = ""
    """The first request of the same outcome, which has the suggestions."""


class Matches(Value):
    """The result of `fleet explain NAME`: an explanation of each object with this name."""

    fleet: str
    name: str
    matches: tuple[Explanation, ...]


class OutcomeGroup(Value):
    """Requests of one signature with the same outcome, in the order of service."""

    signature: str
    queue: str
    required: tuple[str, ...]
    priority: int
    verdict: str
    """Their outcome in words."""
    requests: tuple[Explanation, ...]
    """One explanation each; only the first has suggestions, the others name it in `like`."""


class Everything(Value):
    """The result of `fleet explain request --all`."""

    fleet: str
    groups: tuple[OutcomeGroup, ...]


class EachRequest(Value):
    """The same for programs: one explanation per request."""

    fleet: str
    requests: tuple[Explanation, ...]
