"""Values of `fleet explain`: a headline, facts, reasons with file positions, and next steps."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from pydantic import Field

from fleet.model.decisions import Decision
from fleet.model.facts import PlaceFacts
from fleet.model.values import Moment, Value, later
from fleet.schema.findings import Path
from fleet.tagrules.sources import Enforcer


class ExplainedReason(Value):
    """A reason, with the deciding key of fleet.yaml, its enforcer and the person to ask."""

    because: str
    path: Path = ()
    place: str = ""
    by: Enforcer | None = None
    who: str = ""
    decisions: tuple[Decision, ...] = later((), "The same as data, of a reason about a pool.")


class AwaitedEvent(Value):
    """The runs, workers or time that a request waits for."""

    runs: int = 0
    """Number of future runs of `fleet apply`, if the new machines of each run boot."""
    workers: tuple[str, ...] = ()
    """Busy workers whose work has to end first."""
    until: Moment | None = None
    """The expected time of the event; None if the end of the work is unknown."""
    start: Moment | None = None
    """The expected start of the request after the wait; None if unknown."""
    assumed: Moment | None = None
    """The time if work of unknown duration takes an hour; None if all durations are known."""
    end: Moment | None = Field(None, exclude=True)
    """The expected end of the request that starts then, on the machine that it then gets."""


class KeyChange(Value):
    """A key of fleet.yaml with its old and new value."""

    path: Path
    old: str
    new: str
    yaml: str
    """YAML to merge into fleet.yaml: from the top level, or into an entry of a list."""
    place: str = ""


class Suggestion(Value):
    """Edits of fleet.yaml, a wait, or both, after which a request is served."""

    sentence: str
    changes: tuple[KeyChange, ...] = ()
    asks: tuple[str, ...] = ()
    """Additional tags that the request would have to require."""
    wait: AwaitedEvent | None = None
    harms: tuple[str, ...] = ()
    """Requests that are served now but would wait after the change."""
    brief: str = later("", "The edits, the start that they permit, and their price.")
    is_minor: bool = later(False, "True if an edit listed before permits an equally early start.")
    lifts_limit: bool = False
    """True for a last resort: the edit raises a limit or budget that the team set itself."""


class GivenRule(Value):
    """A rule of the allow-list that applies to a build."""

    path: Path
    match: str
    ask: tuple[str, ...]
    reason: str = ""
    contact: str = ""


class Responsible(NamedTuple):
    """The contact of the fleet, and the allow-list rules that apply to waiting requests."""

    contact: str = ""
    rules: Mapping[str, tuple[GivenRule, ...]] = MappingProxyType({})
    """Id of a signature to the rules of its requests."""


class Contact(Value):
    """A contact from fleet.yaml, and the subject that it answers questions about."""

    name: str
    about: str


class Explanation(Value):
    """The output of `fleet explain` about one object."""

    kind: Literal["request", "pool", "worker", "image", "rule", "tag"]
    name: str
    headline: str
    facts: tuple[str, ...] = ()
    reasons: tuple[ExplainedReason, ...] = ()
    next_steps: tuple[str, ...] = ()
    expected: Moment | None = None
    """The expected start of a request; None if unknown."""
    assumed: Moment | None = None
    """The start if unknown durations are an hour; None unless only durations are unknown."""
    finish: Moment | None = later(None, "The expected end of a request; None if unknown.")
    never: bool = False
    """True if no worker of this fleet can ever run the request."""
    suggestions: tuple[Suggestion, ...] = ()
    """Changes after which the request is served, each checked by a plan, smallest first."""
    places: tuple[PlaceFacts, ...] = ()
    """New machines that could run the request, now or with an additional allow-list rule."""
    currency: str = ""
    """Currency of the costs in `places`."""
    plain: tuple[str, ...] = later((), "The answer for the user of a request, in sentences.")
    needs: str = later("", "The task, architecture and machine that a request needs, in words.")
    rules: tuple[GivenRule, ...] = later((), "The rules of the allow-list that apply to it.")
    contacts: tuple[Contact, ...] = later((), "The contacts of fleet.yaml.")
    behind: str = later("", "The build of the same user in whose place a request starts.")
    path: Path = later((), "The key of fleet.yaml that decides about a request.")
    place: str = later("", "The position of this key.")
    like: str = ""
    """The first request with the same outcome. Its explanation has the suggestions."""


class Matches(Value):
    """The output of `fleet explain NAME`: an explanation of each object with this name."""

    fleet: str
    name: str
    matches: tuple[Explanation, ...]


class EachRequest(Value):
    """The output of `fleet explain request --all`: all requests, group by group."""

    fleet: str
    requests: tuple[Explanation, ...]
    """Only the first request of a group has suggestions, and `like` names the first."""
