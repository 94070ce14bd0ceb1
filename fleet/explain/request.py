"""This module says why a request waits, when it starts, and what would get it served."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from fleet.explain.enforcement import enforcement_facts
from fleet.explain.reasons import (
    FIRST_READ,
    Case,
    format_places,
    is_never,
    places_of,
    reasons_of,
    unknown_of,
)
from fleet.explain.unblock import Suggestion, find_remedies
from fleet.explain.values import ExplainedReason, Explanation
from fleet.explain.what_if import FEWEST_REPLANS, Replans, Run, find_request, is_served
from fleet.model.facts import World
from fleet.model.plan import Plan, Signature, Unserved
from fleet.model.values import Value
from fleet.planner.demand import judge_of
from fleet.schema.model import Fleet, TicketQueue
from fleet.schema.units import write_duration
from fleet.tagrules.context import NOTHING
from fleet.tagrules.export import standing_of

ENDED = "no smallest change was found before the search ended: so large a queue takes long"


def explain_request(fleet: Fleet, world: World, plan: Plan, name: str) -> Explanation | None:
    """Return why a request waits or what serves it; None when nobody knows it.

    `name` is the queue's own id, or `queue/id` where two queues use the same one.
    """
    keys = [key for signature in plan.signatures for key in signature.requests]
    key = next((key for is_meant in _NAMES for key in keys if is_meant(key, name)), None)
    if key is None:
        return None
    signature = next(s for s in plan.signatures if key in s.requests)
    return explain_one(Case(fleet, world, plan), signature, key, Replans(world))


def explain_one(case: Case, signature: Signature, key: str, replans: Replans) -> Explanation:
    """Return the answer about one request."""
    unserved = case.unserved.get(key)
    never = is_never(case, signature, unserved)
    remedies = find_remedies(case.fleet, case.world, case.plan, key, replans) if unserved else ()
    start = _expected(case, key, [remedy.suggestion for remedy in remedies])
    suggestions = tuple(_sooner(remedy.suggestion, start) for remedy in remedies)
    places = places_of(case, signature, key)
    steps = []
    if unserved is None:
        steps.append(_coming(case, signature, key, replans))
    else:
        ways = [
            g.way_out
            for g in case.plan.guards
            if g.result == "refused" and g.path in unserved.paths
        ]
        steps += [f"see to what the guard refuses: {way}" for way in ways if way]
        if not remedies and not steps:
            steps += _nothing_found(case, unserved, replans, never=never)
    return Explanation(
        kind="request",
        name=key,
        headline=headline(case, signature, key, never=never),
        facts=(
            *_request_facts(case, signature, key, start),
            *format_places(case.fleet, places, signature.queue),
            *enforcement_facts(
                case.fleet.tags, case.enforcement, signature.required, (signature.queue,)
            ),
        ),
        reasons=(*_rules(case, key), *reasons_of(case, signature, key, unserved)),
        next_steps=tuple(steps),
        expected=start,
        never=never,
        suggestions=suggestions,
        places=places,
    )


def _rules(case: Case, key: str) -> Iterator[ExplainedReason]:
    """Yield which rules give a ticket a tag, by what it says of its build."""
    found = find_request(case.world, key)
    if found is None or not isinstance(case.fleet.queues.get(key.partition("/")[0]), TicketQueue):
        return
    for origin in judge_of(case.fleet, case.world).ask_of(found[0], NOTHING).origins:
        if origin.path:
            because = f"asks for {origin.tag} by {origin.path[0]}[{origin.path[1]}]"
            yield ExplainedReason(
                because=f"{because}: {origin.because}", path=origin.path, by="scheduler"
            )


def headline(case: Case, signature: Signature, key: str, *, never: bool) -> str:
    """Return the answer in a line."""
    worker = signature.by_worker.get(key)
    if worker is not None:
        may = "exists" if worker in case.seen else "may exist, though nobody can see it now"
        without = _without(case, signature, worker)
        return f"request {key} is next for worker {worker}, which {may}{without}"
    if key in signature.by_create:
        worker = signature.by_create[key]
        return f"request {key} gets a new machine: {worker}{_without(case, signature, worker)}"
    unserved = case.unserved.get(key)
    because = unserved.because if unserved else "no reason is recorded"
    if never:
        return f"request {key} waits: no worker of this fleet can ever run it, because {because}"
    return f"request {key} waits: {because}"


def _without(case: Case, signature: Signature, worker: str) -> str:
    """Return the tags that a request does without on a worker, for it waited long enough."""
    pool = next((w.pool for w in case.plan.workers if w.worker == worker), "")
    provides = case.offers[pool].provides if pool in case.offers else ()
    missing = ", ".join(tag for tag in signature.dropped if tag not in provides)
    return f", without {missing}" if missing else ""


def expectation(case: Case, key: str, start: datetime | None) -> str:
    """Return when a request is expected to start, in words."""
    if start is None:
        because = case.forecast.not_known.get(key, "its queue could not be read")
        return f"expected start: not known ({because})"
    seconds = int((start - case.world.time).total_seconds())
    soon = f"in {write_duration(seconds)}" if seconds else "now"
    return f"expected start: {start:%Y-%m-%d %H:%M} UTC ({soon}), in the queue's own order"


def _coming(case: Case, signature: Signature, key: str, replans: Replans) -> str:
    """Return how a request that is served comes to its worker, if it does in the next run too."""
    following = replans.run_after(Run(case.fleet, case.world, case.plan))
    if following is not None and not is_served(following.plan, key):
        waits = next((u.because for u in following.plan.unserved if key in u.requests), "")
        return f"see to it soon: planned again for the next run, the request would wait: {waits}"
    worker = signature.by_worker.get(key)
    if worker is None:
        return "nothing to do: the next `fleet apply` makes it, then the queue assigns the request"
    if worker not in case.seen:
        return "see to what is unknown: until it is read again nothing is bought in its place"
    state = next((w.state for w in case.plan.workers if w.worker == worker), "")
    first = {"starting": "once it has booted, ", "busy": "once its work has ended, "}
    said = first.get(state, "")
    return f"nothing to do: {said}the queue assigns the request to a free worker that fits"


def _is_first_of(key: str, name: str) -> bool:
    whole = key.removesuffix("#1")
    return whole != key and name in (whole, whole.partition("/")[2])


_NAMES: tuple[Callable[[str, str], bool], ...] = (
    str.__eq__,
    lambda key, name: key.partition("/")[2] == name,
    _is_first_of,
)
"""Whom a name may mean, the surest first: a whole name, a queue's own id, a group's id."""


def _expected(case: Case, key: str, suggestions: Iterable[Suggestion]) -> datetime | None:
    """Return when a request starts: on a worker of this plan, or on one of the coming runs."""
    starts = [case.forecast.start_of(key)]
    starts += [each.wait.start for each in suggestions if each.wait and not _edits(each)]
    return min((start for start in starts if start is not None), default=None)


def _edits(suggestion: Suggestion) -> bool:
    return bool(suggestion.changes or suggestion.asks)


def _sooner(suggestion: Suggestion, start: datetime | None) -> Suggestion:
    """Return a suggestion that says so where a worker may be free before the awaited run."""
    wait = suggestion.wait
    if wait is None or start is None or wait.until is None or not wait.runs:
        return suggestion
    if _edits(suggestion) or start >= wait.until:
        return suggestion
    soon = f"; a worker that fits may be free for it before, about {start:%H:%M} UTC"
    return suggestion.model_copy(update={"sentence": suggestion.sentence + soon})


def _request_facts(
    case: Case, signature: Signature, key: str, start: datetime | None
) -> Iterator[str]:
    found = find_request(case.world, key)
    if found is not None:
        request, _ = found
        described = " ".join(filter(None, [request.task, request.package, request.scope]))
        since = (
            f"{request.pending_since:%Y-%m-%d %H:%M} UTC" if request.pending_since else "not known"
        )
        # A ticket has no task.
        task = f"task {described}, " if described else ""
        yield f"{task}priority {signature.priority}, since {since}"
    yield f"requires {', '.join(signature.required) or 'nothing'}"
    position = signature.requests.index(key) + 1
    if signature.count > 1:
        yield f"number {position} of {signature.count:,} waiting requests that ask the same"
    yield expectation(case, key, start)
    for verdict in case.plan.rules:
        if verdict.queue == signature.queue:
            yield f"rules of {verdict.queue}, {verdict.place}: {standing_of(verdict)}"


def _nothing_found(
    case: Case, unserved: Unserved, replans: Replans, *, never: bool
) -> Iterator[str]:
    if unknown_of(case, unserved):
        yield FIRST_READ
    elif "does not provide worker:build-arch:" in unserved.because:
        yield "add a pool with machines and an image of that architecture"
    elif replans.is_spent:
        yield ENDED
    elif never:
        yield "add a pool whose machines and image have what it requires"
    else:
        yield "no edit of fleet.yaml and no waiting gets it served: see to the reasons above"


MOST_REPLANS = 100
"""So often is planned again for all groups together, in the order of service."""

BY_WORKER = "next for workers that exist"
BY_UNSEEN = "next for workers that may exist, though nobody can see them now"
BY_CREATE = "get new machines"
_SERVED = (BY_WORKER, BY_UNSEEN, BY_CREATE)


class Group(Value):
    """Requests of one signature that fare the same, in the order of service."""

    signature: str
    queue: str
    required: tuple[str, ...]
    priority: int
    verdict: str
    """What becomes of them, in words."""
    requests: tuple[Explanation, ...]
    """The answer about each; suggestions stand with the first, and the others say so."""


class Everything(Value):
    """What `fleet explain request --all` answers."""

    fleet: str
    groups: tuple[Group, ...]


class EachRequest(Value):
    """The same for programs: one answer for each request."""

    fleet: str
    requests: tuple[Explanation, ...]


def explain_every(
    fleet: Fleet, world: World, plan: Plan, *, most: int = MOST_REPLANS
) -> Everything:
    """Return the answer about every waiting request, the first to be served first.

    At most so often is planned again for it.
    """
    case, replans = Case(fleet, world, plan), Replans(world, most)
    apart = [*_apart(case)]
    searches = sum(verdict not in _SERVED for _, verdict, _ in apart)
    groups = []
    for signature, verdict, keys in apart:
        waits = verdict not in _SERVED
        # What one search has planned the others know too.
        with replans.share(_share(replans.left, searches) if waits else 1, tells=1) as given:
            answers = tuple(_answers(case, signature, keys, given))
        searches -= waits
        groups.append(
            Group(
                signature=signature.id,
                queue=signature.queue,
                required=signature.required,
                priority=signature.priority,
                verdict=verdict,
                requests=answers,
            )
        )
    return Everything(fleet=fleet.fleet, groups=tuple(groups))


def _share(left: int, searches: int) -> int:
    """Return how much of what is left the next of so many searches gets: enough, or nothing."""
    return max(FEWEST_REPLANS, left // searches) if left >= FEWEST_REPLANS // 2 else 0


def _apart(case: Case) -> Iterator[tuple[Signature, str, list[str]]]:
    """Yield the requests of each signature that fare the same, those first that are served."""
    for signature in case.plan.signatures:
        verdicts = {key: _verdict(case, signature, key) for key in signature.requests}
        for verdict in sorted(dict.fromkeys(verdicts.values()), key=_rank):
            yield signature, verdict, [key for key in verdicts if verdicts[key] == verdict]


def each_request(everything: Everything) -> EachRequest:
    """Return the answers without their groups."""
    answers = (answer for group in everything.groups for answer in group.requests)
    return EachRequest(fleet=everything.fleet, requests=tuple(answers))


def _verdict(case: Case, signature: Signature, key: str) -> str:
    if key in signature.by_worker:
        return BY_WORKER if signature.by_worker[key] in case.seen else BY_UNSEEN
    if key in signature.by_create:
        return BY_CREATE
    unserved = case.unserved.get(key)
    return unserved.because if unserved else "no reason is recorded"


def _rank(verdict: str) -> int:
    return _SERVED.index(verdict) if verdict in _SERVED else len(_SERVED)


def _answers(
    case: Case, signature: Signature, keys: list[str], replans: Replans
) -> Iterator[Explanation]:
    first = explain_one(case, signature, keys[0], replans)
    if first.next_steps == (ENDED,):
        steps = (f"`fleet explain request {keys[0]}` looks for the smallest change",)
        first = first.model_copy(update={"next_steps": steps})
    yield first
    for key in keys[1:]:
        said = headline(case, signature, key, never=first.never)
        update: dict[str, object] = {"name": key, "headline": said, "suggestions": ()}
        start = case.forecast.start_of(key)
        update |= {"facts": (expectation(case, key, start),), "like": first.name}
        update["expected"] = start
        yield first.model_copy(update=update)
