"""Explain the source of each tag of a request, and the enforcement of each tag of a fleet."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from fleet.explain.values import ExplainedReason
from fleet.model.decisions import Unfit
from fleet.model.facts import Request, World
from fleet.model.tickets import task_in
from fleet.model.values import Value, later
from fleet.planner.fitting import FitDecider, FitRequirements, fitting, held_tags
from fleet.schema.findings import Path
from fleet.schema.model import CoprQueue, DebusineQueue, Fleet, TicketQueue
from fleet.schema.rules import TagRule
from fleet.schema.units import write_count
from fleet.tagrules.allow import is_for_task, rules_for_name
from fleet.tagrules.export import DEFAULT_TASKS, describe_rule_at, judge_rules
from fleet.tagrules.names import ANY_ARCHITECTURE, PARTS, SOURCE_ARCHITECTURE, names_of
from fleet.tagrules.requests import TagRequirements
from fleet.tagrules.sources import (
    BUILD_ARCH,
    Claim,
    Enforcement,
    Enforcer,
    enforcement_of,
    known_tags,
    limits_of,
    pools_providing,
    weakest,
)
from fleet.tagrules.vocabulary import tag_name
from fleet.words import answers
from fleet.words.lives import join
from fleet.words.pools import describe_pool, with_messages
from fleet.words.runs import add_reason

WORDS: dict[Enforcer, str] = {
    "scheduler": "enforced by the scheduler",
    "capacity": "enforced by capacity only",
    "report": "not enforced, only reported",
}


class EnforcedClaim(Value):
    """The enforcer of one claim about a tag at one queue, such as its exclusivity."""

    claim: Claim
    queue: str
    by: Enforcer
    because: str
    path: tuple[str | int, ...]
    place: str = ""


class ListedTag(Value):
    """A tag that fleet.yaml declares, provides or requires."""

    tag: str
    kind: str
    on_demand: bool
    exclusive: bool
    limits: dict[str, int]
    pools: tuple[str, ...]
    enforcement: tuple[EnforcedClaim, ...]


class TagList(Value):
    """The output of `fleet tags list`."""

    fleet: str
    tags: tuple[ListedTag, ...]


def list_tags(fleet: Fleet) -> TagList:
    """Return every known tag with its pools, limits and enforcement."""
    claims, providing = enforcement_of(fleet), pools_providing(fleet)
    declared = {tag: fleet.tags.get(tag) or TagRule() for tag in known_tags(fleet)}
    return TagList(
        fleet=fleet.fleet,
        tags=tuple(
            ListedTag(
                tag=tag,
                kind=rule.kind,
                on_demand=rule.on_demand,
                exclusive=rule.exclusive,
                limits=limits_of(rule),
                pools=providing[tag],
                enforcement=tuple(
                    EnforcedClaim.model_validate(each, from_attributes=True)
                    for each in claims
                    if each.tag == tag
                ),
            )
            for tag, rule in declared.items()
        ),
    )


def enforcement_facts(
    declared: Collection[str],
    claims: Iterable[Enforcement],
    tags: Iterable[str],
    queues: Collection[str],
) -> Iterator[str]:
    """Yield a sentence per exclusivity, limit and minimum of these tags at these queues."""
    wanted = {tag_name(tag) for tag in tags}
    alike: defaultdict[tuple[str, Enforcer, str, str], list[str]] = defaultdict(list)
    for each in claims:
        plain = each.claim == "tag" and each.by != "capacity"
        if each.tag in wanted and each.tag in declared and each.queue in queues and not plain:
            alike[each.tag, each.by, each.queue, each.because].append(each.claim)
    for (tag, by, queue, because), found in alike.items():
        yield answers.describe_enforcement(tag, found, WORDS[by], queue, because)


def enforcer_of_limit(
    claims: Iterable[Enforcement], path: Path, queues: Collection[str]
) -> Enforcer | None:
    """Return the enforcer of the limit at a path: "scheduler", "capacity", "report" or None."""
    if path[:1] == ("queues",) and path[2:]:
        return "scheduler"  # fleet itself assigns tickets
    if path[:1] != ("tags",):
        return "capacity"
    found = (each for each in claims if each.path == path[:3] and each.queue in queues)
    return weakest(each.by for each in found if not each.recorded)


@dataclass(frozen=True)
class Subject:
    """The object to explain: a name, or a request that waits in a queue."""

    name: str
    request: Request
    ruled_by: tuple[str, ...]
    """The queues whose rules decide the tags of the name."""
    queue: str | None = None


class ExplainedTag(Value):
    """A tag of a request, its effect, and every rule that adds or forbids the tag."""

    tag: str
    verdict: Literal["counts", "refused", "not-stored"]
    reasons: tuple[ExplainedReason, ...]


class TagsExplanation(Value):
    """The output of `fleet tags explain`."""

    name: str
    headline: str
    tags: tuple[ExplainedTag, ...] = ()
    other_tasks: tuple[ExplainedReason, ...] = later(
        (), "Rules of the allow-list that match its name, but not its task."
    )
    pools: tuple[ExplainedReason, ...] = ()


def request_of_name(fleet: Fleet, name: str, task: str | None = None) -> Request | None:
    """Return a request with this name of four parts; None if the name has more or fewer parts.

    The default task is the one that builds the package. The request is from Debusine if the first
    part is a scope of a Debusine queue, or if only Debusine queues have names. Otherwise it is
    from Copr.
    """
    parts = name.split("/")
    if len(parts) != PARTS or not all(parts):
        return None
    scopes = {s for q in fleet.queues.values() if isinstance(q, DebusineQueue) for s in q.scopes}
    others = any(isinstance(q, CoprQueue | TicketQueue) for q in fleet.queues.values())
    fields: dict[str, object] = {"id": name, "package": parts[3]}
    if parts[0] not in scopes and (others or not scopes):
        copr = zip(("owner", "project", "chroot"), parts, strict=False)
        return Request.model_validate(fields | dict(copr) | {"task": task or task_in(parts[2])})
    scope, workspace, architecture, _ = parts
    fields |= {"scope": scope, "workspace": workspace, "task": task or DEFAULT_TASKS[0]}
    if architecture == SOURCE_ARCHITECTURE:
        fields["task_data"] = {"build_components": ["source"]}
    elif architecture != ANY_ARCHITECTURE:
        tag = BUILD_ARCH + architecture
        fields |= {"required": (tag,), "asked": {tag: "task"}}
    return Request.model_validate(fields)


def queues_of(fleet: Fleet, request: Request) -> tuple[str, ...]:
    """Return the queues that have tag rules and may receive a request with this name."""
    return tuple(
        name
        for name, queue in sorted(fleet.queues.items())
        if (isinstance(queue, DebusineQueue) and request.scope in queue.scopes)
        or (isinstance(queue, CoprQueue) and request.scope is None)
    )


def explain_tags(
    fleet: Fleet, world: World, subject: Subject, asking: TagRequirements
) -> TagsExplanation:
    """Explain the source of each tag of a request, and which pools can run the request."""
    verdicts = tuple(judge_rules(fleet, world))

    def acts(path: Path) -> str:
        states = (describe_rule_at(fleet, verdicts, each, path) for each in subject.ruled_by)
        return "; ".join(filter(None, states)) if path[:1] in _RULES else ""

    tags = tuple(_tags(asking, acts))
    counting = sum(tag.verdict == "counts" for tag in tags)
    refused = sum(tag.verdict == "refused" for tag in tags)
    headline = f"{subject.name}: {write_count(counting, 'tag')} granted"
    if refused:
        headline += f", {refused} denied"
    return TagsExplanation(
        name=subject.name,
        headline=headline,
        tags=tags,
        other_tasks=tuple(_other_tasks(fleet, world.time.date(), subject.request)),
        pools=tuple(_pools(fleet, world, asking, subject.queue)),
    )


_RULES: Sequence[Path] = (("powerful",), ("derive",))


def _tags(asking: TagRequirements, acts: Callable[[Path], str]) -> Iterator[ExplainedTag]:
    found: defaultdict[str, list[ExplainedReason]] = defaultdict(list)
    for origin in asking.origins:
        known = add_reason(origin.source, origin.because) if origin.path else origin.because
        because = join(known, acts(origin.path))
        found[origin.tag].append(ExplainedReason(because=because, path=origin.path))
    for tag, reasons in sorted(found.items()):
        yield ExplainedTag(tag=tag, verdict="counts", reasons=tuple(reasons))
    for refusal in asking.refused:
        reason = ExplainedReason(because=refusal.because, path=refusal.path)
        yield ExplainedTag(tag=refusal.tag, verdict="refused", reasons=(reason,))
    for each in asking.differences:
        because = join(each.because, acts(each.path))
        reason = ExplainedReason(because=because, path=each.path)
        yield ExplainedTag(tag=each.tag, verdict="not-stored", reasons=(reason,))


def _other_tasks(fleet: Fleet, today: date, request: Request) -> Iterator[ExplainedReason]:
    matches = [each for name in names_of(request) for each in rules_for_name(fleet, name, today)]
    for each in matches:
        if not is_for_task(each.rule, request.task):
            task, rule = request.task or "a request without a task", each.rule
            because = answers.explain_other_task(repr(rule.match), each.name, rule.task, task)
            yield ExplainedReason(because=because, path=("powerful", each.index))


def _pools(
    fleet: Fleet, world: World, asking: TagRequirements, queue: str | None
) -> Iterator[ExplainedReason]:
    held = held_tags(asking.refused) if asking.held else ()
    is_unknown = any(each.is_unknown for each in asking.refused if each.tag in held)
    asked = FitRequirements(queue, asking.ask, held=held, is_unknown=is_unknown)
    decider = FitDecider(fleet, world)
    for name in sorted(fleet.pools):
        decisions = decider.find_unfit(asked, name) or (fitting(name),)
        first = decisions[0]
        path = first.key if first.code is Unfit.QUEUE_NOT_SERVED else ("pools", name)
        yield ExplainedReason(
            because=describe_pool(decisions), path=path, decisions=with_messages(decisions)
        )
