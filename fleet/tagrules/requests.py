"""The tags that a request requires, with the source of each tag, and the refused tags.

Tags come from the user, the task, a ticket, and the rules of `powerful` and `derive`. A tag that
its source may not require has no effect and becomes a `TagRefusal`. If the queue stored tags with
a request, only these count; a further tag by a newer rule is a difference.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Literal, Union
from weakref import WeakKeyDictionary

from fleet.schema.findings import Path
from fleet.schema.model import Askers, Fleet
from fleet.schema.rules import Asker, Otherwise
from fleet.tagrules.allow import AllowList, RuleMatch
from fleet.tagrules.derive import QueueContext, derive, find_unknown_tags, is_about_environments
from fleet.tagrules.names import is_source_build
from fleet.tagrules.offers import Ask
from fleet.tagrules.vocabulary import Vocabulary, read_minimums, tag_name

if TYPE_CHECKING:
    # Checks of fleet.yaml import this package without facts.
    from fleet.model.facts import Request, Unknown

Memberships = Union[Mapping[str, Collection[str]], "Unknown"]
"""Map of group to its users; Unknown if the groups could not be read."""
Source = Literal["user", "task", "ticket", "system", "rule", "derived", "unknown"]

_MAX_CACHED = 10_000
"""Maximum number of requests whose cached results later judges of the fleet can use."""
_WORDS: Mapping[Source, str] = {
    "user": "user",
    "task": "task",
    "derived": "task",
    "ticket": "tickets",
    "system": "system",
    "rule": "rules",
}
"""Map of a tag's source to the word for this source in `asked_by`."""


@dataclass(frozen=True)
class TagOrigin:
    """A required tag, and its source. `path` is the key in fleet.yaml, if any."""

    tag: str
    source: Source
    because: str
    path: Path = ()
    value: str = ""
    """The value in the request that the tag was derived from; empty for other tags."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Return the fields that determine the text `because` of a tag that a rule adds."""
        return self.tag, self.path, self.value


@dataclass(frozen=True)
class TagRefusal:
    """A required tag without effect, with its source and the key of fleet.yaml that forbids it."""

    tag: str
    who: str
    because: str
    path: Path
    is_sure: bool = True
    """False if the tag may be permitted but groups could not be read."""
    is_unknown: bool = False
    """Whether the tag itself is unknown, because a value of the request defines no tag."""
    value: str = ""
    """The value of the request that defines no tag; empty if the tag is known."""

    @property
    def identity(self) -> tuple[object, ...]:
        """Return the fields that determine the text `because`."""
        return self.tag, self.who, self.path, self.is_sure, self.value


@dataclass(frozen=True)
class TagRequirements:
    """The tags and minimums that a request requires, with their sources."""

    ask: Ask
    origins: tuple[TagOrigin, ...] = ()
    refused: tuple[TagRefusal, ...] = ()
    differences: tuple[TagOrigin, ...] = ()
    """Tags that today's rules add, but that the queue did not store with the request."""
    held: bool = False
    """Whether no machine may serve the request, as a necessary tag is forbidden or unknown."""


@dataclass
class Judge:
    """Evaluator of the tags that requests require. It evaluates equal requests only once."""

    fleet: Fleet
    memberships: Memberships
    today: date
    with_provided: bool = True
    """Whether some worker requires tags that requests provide."""

    def __post_init__(self) -> None:
        """Compile the rules once for all requests. Use cached results of earlier judges."""
        # The day decides which rules match, and each key contains the rules.
        about = ("askings", self.with_provided)
        self._known: WeakKeyDictionary[QueueContext, dict[object, TagRequirements]]
        self._known = self.fleet.cached(about, (self.memberships,), WeakKeyDictionary)
        self._alike: dict[QueueContext, dict[object, TagRequirements]] = {}
        self._vocabulary = Vocabulary(self.fleet)
        self._allowed: AllowList | None = None
        if self.fleet.powerful:
            self._allowed = AllowList(self.fleet, self.today)
        self._history = any(rule.history is not None for rule in self.fleet.derive)
        self._permissions = any(rule.asked_by is not None for rule in self.fleet.tags.values())

    def ask_of(self, request: "Request", context: QueueContext) -> TagRequirements:
        """Return the tags that a request requires, with their sources."""
        bare = self._judge(request, self._rules_for(request), context)
        return _replace_provided(bare, self._provided_by(request))

    def ask_of_alike(self, request: "Request", context: QueueContext) -> TagRequirements:
        """Return the requirements, computed once for all requests that fleet.yaml treats equally.

        The origins do not have the text that a pattern matched, because this text differs.
        """
        rules = self._rules_for(request)
        provided, key = self._provided_by(request), self._key(request, rules)
        if context not in self._alike:
            cached = self._known.get(context, {})
            cached = cached if len(cached) < _MAX_CACHED else {}
            self._alike[context] = self._known[context] = cached
        known = self._alike[context]
        found = known.get((provided, key))
        if found is None:
            # All else is independent of the provided tags, which often contain the package's name.
            nameless = [replace(rule, name="") for rule in rules]
            bare = known.get(((), key)) or self._judge(request, nameless, context)
            known[(), key] = bare
            found = known[provided, key] = _replace_provided(bare, provided)
        return found

    def _provided_by(self, request: "Request") -> tuple[str, ...]:
        return request.provided if self.with_provided else ()

    def _rules_for(self, request: "Request") -> "tuple[RuleMatch, ...]":
        return self._allowed.rules_for(request) if self._allowed else ()

    def _key(self, request: "Request", rules: "Sequence[RuleMatch]") -> object:
        """Return the fields of a request that fleet.yaml uses, except the provided tags."""
        key: list[object] = [request.required, tuple([rule.index for rule in rules])]
        if self._permissions and request.asked:
            key += [tuple(sorted(request.asked.items())), request.requester, request.groups]
            key += [request.workspace, request.scope]
        if self.fleet.derive:
            key += [request.task, is_source_build(request), repr(request.task_data)]
        if self._history:
            key.append(request.package)
        return tuple(key)

    def _judge(
        self, request: "Request", rules: "Sequence[RuleMatch]", context: QueueContext
    ) -> TagRequirements:
        required = frozenset(request.required)
        asked = [*_list_origins(request, stored=context.stored)]
        ruled = [*_rule_origins(rules)]
        good = [o for o in (*asked, *ruled) if self._refusal(request, o) is None]
        derived = [
            TagOrigin(d.tag, "derived", d.because, ("derive", d.index), d.value)
            for d in derive(self.fleet, request, {origin.tag for origin in good}, context)
        ]
        good += [o for o in derived if self._refusal(request, o) is None]
        counted = {origin.tag for origin in good}
        unknown = [*self._refuse_unknown(request, counted, context)]
        differences: tuple[TagOrigin, ...] = ()
        if context.stored:
            differences = tuple(_differences([o for o in good if o.tag not in required]))
            good = [origin for origin in good if origin.tag in required]
            counted &= required
        refused = [
            refusal
            for origin in (*asked, *ruled, *derived)
            if origin.tag not in counted and (refusal := self._refusal(request, origin))
        ]
        plain, minimums = read_minimums(counted, self._vocabulary.numeric)
        return TagRequirements(
            ask=Ask(plain, minimums=minimums),
            origins=tuple(sorted(good, key=lambda origin: (origin.tag, origin.source))),
            refused=tuple(dict.fromkeys((*refused, *unknown))),
            differences=differences,
            held=bool(unknown)
            or any(
                refusal.tag in required
                and (context.stored or not refusal.is_sure or self._needs(request, refusal.tag))
                for refusal in refused
            ),
        )

    def _refuse_unknown(
        self, request: "Request", tags: Collection[str], context: QueueContext
    ) -> Iterator[TagRefusal]:
        """Yield refusals for tags that the request may need but that its values leave unknown."""
        for each in find_unknown_tags(self.fleet, request, tags, context):
            path: Path = ("derive", each.index)
            rule = self.fleet.derive[each.index]
            who = "the look-up" if is_about_environments(rule) else "the task data"
            yield TagRefusal(rule.ask, who, each.because, path, is_unknown=True, value=each.value)

    def _needs(self, request: "Request", tag: str) -> bool:
        """Return whether a ticket requires a tag and may not run without the tag."""
        names = self._vocabulary.names_of(tag)
        drops = any(isinstance(self.fleet.tags[name].otherwise, Otherwise) for name in names)
        return "ticket" in (request.asked.get(tag), request.asked.get(tag_name(tag))) and not drops

    def _refusal(self, request: "Request", origin: TagOrigin) -> TagRefusal | None:
        """Return the refusal of a tag; None if it is permitted or if its source is unknown."""
        allowed, path = self._vocabulary.asked_by(origin.tag)
        if allowed is None or origin.source == "unknown" or _WORDS[origin.source] in allowed:
            return None
        named = [asker for asker in allowed if isinstance(asker, Askers)]
        known = self.memberships if isinstance(self.memberships, Mapping) else {}
        if origin.source in ("user", "ticket") and any(
            (request.requester is not None and request.requester in askers.users)
            or request.workspace in askers.workspaces
            or request.scope in askers.scopes
            or any(
                g in request.groups or request.requester in known.get(g, ()) for g in askers.groups
            )
            for askers in named
        ):
            return None
        who = _name_asker(request, origin)
        because = (
            f"{who} may not ask for {origin.tag}: {'.'.join(map(str, path))} allows only "
            f"{write_askers(allowed)}"
        )
        may_be_one = origin.source in ("user", "ticket") and any(each.groups for each in named)
        if isinstance(self.memberships, Mapping) or not may_be_one:
            return TagRefusal(origin.tag, who, because, path)
        because += f" (group members are unknown: {self.memberships.unknown})"
        return TagRefusal(origin.tag, who, because, path, is_sure=False)


def _replace_provided(bare: TagRequirements, provided: tuple[str, ...]) -> TagRequirements:
    """Replace the provided tags in requirements."""
    if not provided:
        return bare
    return replace(bare, ask=bare.ask._replace(provided=frozenset(provided)))


def write_askers(askers: Sequence[Asker]) -> str:
    """Return the entries of `asked_by` as text."""
    parts: list[str] = []
    for asker in askers:
        if isinstance(asker, str):
            parts.append(asker)
            continue
        for kind, names in (
            ("user", asker.users),
            ("group", asker.groups),
            ("workspace", asker.workspaces),
            ("scope", asker.scopes),
        ):
            parts += [f"{kind} {name}" for name in names]
    return ", ".join(parts) or "no one"


def _list_origins(request: "Request", *, stored: bool) -> Iterator[TagOrigin]:
    words = {
        "user": "the user asked for it",
        "task": "the task asked for it",
        "ticket": "the ticket asked for it",
        "system": "the system asked for it",
        "unknown": "the queue stored it" if stored else "the request asks for it",
    }
    for tag in request.required:
        source: Source = request.asked.get(tag) or request.asked.get(tag_name(tag)) or "unknown"
        because = words[source]
        if source == "unknown":
            because += " (asker unknown)"
        yield TagOrigin(tag, source, because)


def _rule_origins(rules: "Sequence[RuleMatch]") -> Iterator[TagOrigin]:
    for match in rules:
        contact = f", contact {match.rule.contact}" if match.rule.contact else ""
        only = f" of task {match.rule.task}" if match.rule.task else ""
        because = f"pattern {match.rule.match!r}{only} matches {match.name or 'it'}{contact}"
        for tag in match.rule.ask:
            yield TagOrigin(tag, "rule", because, ("powerful", match.index))


def _name_asker(request: "Request", origin: TagOrigin) -> str:
    match origin.source:
        case "rule" | "derived":
            return f"rule {origin.path[0]}[{origin.path[1]}]"
        case "user" | "ticket":
            through = " (by ticket)" if origin.source == "ticket" else ""
            return f"user {request.requester or '(unknown)'}{through}"
        case _:
            return f"the {origin.source}"


def _differences(origins: Sequence[TagOrigin]) -> Iterator[TagOrigin]:
    for origin in origins:
        if origin.source == "rule":
            because = (
                f"powerful[{origin.path[1]}] is newer than the request: the queue did not store "
                f"{origin.tag} with it"
            )
        else:
            because = (
                f"derive[{origin.path[1]}] adds {origin.tag} ({origin.because}): the queue did "
                "not store it with the request"
            )
        yield replace(origin, because=because)
