"""The waiting requests by outcome and age, with explanations of the longest waits."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.request import (
    ENDED,
    FEWEST_PLANS,
    MOST_REPLANS,
    SERVED,
    by_outcome,
    explain_alike,
    explain_one,
    is_never,
    places_of,
)
from fleet.explain.unblock import Remedy, find_remedies, find_single_edits, plan_edits
from fleet.explain.values import Explanation, Suggestion
from fleet.explain.what_if import REQUEST, PlannedRun, Replans
from fleet.model.plan import Signature
from fleet.planner.forecast import registered_workers
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.names import package_of
from fleet.words.waiting import NO_GAIN, describe_gain, describe_place

MOST_EXPLAINED = 100
"""Maximum number of groups with and without a worker whose first request has the reason of each
pool; the groups without a worker also have suggestions."""
_MOST_PLACES = 500
"""Maximum number of requests with the cost on each machine type, which takes some milliseconds."""
LONG_SECONDS = 3600
"""Seconds after which a wait is long if no suitable pool has a `target_wait`."""
_MIN_GAIN = timedelta(minutes=1)
"""Minimum time by which an edit must move the start of a request."""
_MAX_WORK = 5_000
"""Maximum requests and workers in all plans of the searches. This takes one or two seconds."""


class WaitingRequest(NamedTuple):
    """A request with the start of its wait, its expected start, its package and its user."""

    key: str
    since: datetime | None
    start: datetime | None
    package: str = ""
    assumed: datetime | None = None
    """The start by assumed durations; None if a better estimate is known."""
    user: str = ""
    never: bool = False
    """True if no worker of this fleet can ever run it."""
    why: str = ""
    """The first sentence of its explanation, or else the outcome of its group."""
    brief: str = ""
    """Its position in the queue if that is the reason, or else `why`, in short if it is served."""


class RunningBuild(NamedTuple):
    """A build that a worker runs, with its expected end."""

    key: str
    worker: str
    package: str = ""
    user: str = ""
    since: datetime | None = None
    end: datetime | None = None


class WaitingGroup(NamedTuple):
    """Requests with equal tags and priority and the same outcome, in service order."""

    signature: Signature
    verdict: str
    """The outcome in words."""
    is_served: bool
    """True if the requests have a worker, or if the next apply creates a machine for them."""
    long_seconds: int
    """Seconds after which a wait is long: the smallest `target_wait`, or an hour."""
    requests: tuple[WaitingRequest, ...]

    @property
    def why(self) -> str:
        """Return the sentence about its first request; the outcome of many requests with workers.

        Requests with workers have different sentences, because each names its worker.
        """
        is_alike = not self.is_served or not self.requests[1:]
        return (is_alike and self.requests[0].why) or self.verdict

    @property
    def since(self) -> datetime | None:
        """Return the start of the longest wait; None if unknown."""
        return min((r.since for r in self.requests if r.since is not None), default=None)

    def is_long(self, request: WaitingRequest, now: datetime) -> bool:
        """Return whether a request has waited longer than `long_seconds`."""
        return request.since is not None and now - request.since > timedelta(
            seconds=self.long_seconds
        )


class WaitingExplanations(NamedTuple):
    """All waiting requests with explanations, and the running builds."""

    groups: tuple[WaitingGroup, ...] = ()
    """Groups without a worker first, then by priority and number of requests."""
    explained: Mapping[str, Explanation] = {}
    """Request to explanation; only the first requests of some groups have all reasons."""
    running: tuple[RunningBuild, ...] = ()


def waits_of(case: Case, *, most: int = MOST_EXPLAINED) -> WaitingExplanations:
    """Return the waiting requests, each explained, and the running builds.

    The first requests of `most` groups without a worker have suggestions.
    """
    groups = sorted(
        (_group(case, *each) for each in by_outcome(case)),
        key=lambda g: (g.is_served, -g.signature.priority, -len(g.requests)),
    )
    unserved = [group for group in groups if not group.is_served]
    served = [group for group in groups if group.is_served]
    explained: dict[str, Explanation] = {}
    helps: dict[str, _Helps] = {}
    for key, answer, found in _explain_firsts(case, unserved[:most]):
        explained[key], helps[key] = answer, found
    for group in served[:most]:
        key = group.requests[0].key
        explained[key] = explain_one(case, group.signature, key, Replans(0))
    for group in groups:
        first = explained.get(group.requests[0].key) or _explain_briefly(case, group)
        for request in group.requests:
            if request.key not in explained:
                is_costed = len(explained) < _MOST_PLACES
                places = places_of(case, group.signature, request.key) if is_costed else ()
                answer = explain_alike(case, group.signature, request.key, first, places)
                explained[request.key] = answer.altered(places=places, next_steps=first.next_steps)
            own = helps.get(group.requests[0].key)
            if own is not None:
                explained[request.key] = _add_gains(case, explained[request.key], own)
    shown = (each for group in groups for each in _set_starts(case, group, explained))
    return WaitingExplanations(tuple(shown), explained, tuple(_running(case)))


class _Helps(NamedTuple):
    """Edits of fleet.yaml that may help a group of requests, each with the run after it."""

    runs: tuple[tuple[Remedy, PlannedRun], ...]
    is_complete: bool
    """True if no search stopped because no trial plan was left."""


def _find_helps(case: Case, key: str, remedies: Sequence[Remedy], replans: Replans) -> _Helps:
    """Return the edits that serve the first request of a group, and further single edits."""
    known = {edit.path for each in remedies for edit in each.edits}
    singles = find_single_edits(case, key, replans)
    every = [*remedies, *(each for each in singles if each.edits[0].path not in known)]
    runs = ((each, plan_edits(case, key, each.edits, replans)) for each in every if each.edits)
    found = tuple((each, after) for each, after in runs if after is not None)
    return _Helps(found, is_complete=not replans.is_spent)


def _add_gains(case: Case, answer: Explanation, helps: _Helps) -> Explanation:
    """Return an explanation with the edits after which the request starts earlier."""
    key, now = answer.name, answer.expected or answer.assumed
    gained: list[Suggestion] = []
    starts = set()
    for remedy, after in helps.runs:
        own, wait = remedy.suggestion in answer.suggestions, remedy.suggestion.wait
        start = after.expected_start(key) or after.assumed_start(key)
        if own and wait:
            start = wait.start or wait.until
        elif not own and any(edit.path == REQUEST for edit in remedy.edits):
            continue
        if (start is None and not own) or (now and (start is None or now - start < _MIN_GAIN)):
            continue
        # The page folds all but the first of several edits with the same gain.
        is_new = start is None or start not in starts
        starts.add(start)
        brief = describe_gain(remedy.describe(case.fleet), start, now) if is_new else ""
        gained.append(remedy.suggestion.altered(brief=brief))
    waits = (each for each in answer.suggestions if not each.changes and not each.asks)
    is_vain = now is not None and not gained and helps.is_complete
    steps = (*answer.next_steps, *([NO_GAIN] if is_vain else []))
    return answer.altered(suggestions=(*waits, *gained), next_steps=steps)


def _explain_briefly(case: Case, group: WaitingGroup) -> Explanation:
    """Return the common part of the explanations of a group, without the reasons of pools."""
    unserved = case.unserved.get(group.requests[0].key)
    never = is_never(case, group.signature, unserved)
    return Explanation(kind="request", name="", headline="", never=never)


def _running(case: Case) -> Iterator[RunningBuild]:
    """Yield the running builds, with their expected ends."""
    known, standing = registered_workers(case.world), case.forecast.standing
    for each in case.plan.workers:
        worker, seen = known.get(each.worker), standing.get(each.worker)
        if not each.running:
            continue
        work, end = worker.work if worker else None, seen.free_in if seen and seen.works else None
        yield RunningBuild(
            each.running,
            each.worker,
            (work.package if work else "") or "",
            (work.requester if work else "") or "",
            work.started_at if work else None,
            None if end is None else case.world.time + timedelta(seconds=end),
        )


def _set_starts(
    case: Case, group: WaitingGroup, explained: Mapping[str, Explanation]
) -> Iterator[WaitingGroup]:
    """Yield the group with the expected starts that the explanations have.

    Requests without a worker are one group per first sentence of their explanations.
    """
    alike: defaultdict[str, list[WaitingRequest]] = defaultdict(list)
    for each in group.requests:
        answer = explained[each.key]
        why = answer.plain[0] if answer.plain else group.verdict
        start, never = answer.expected or answer.assumed, answer.never
        is_in_line = start and not never and each.key in case.line and each.key not in case.turns
        ahead, pools = case.line.get(each.key, (0, 0))[0], group.signature.pools
        brief = SERVED.get(group.verdict, why)
        if is_in_line:
            brief = describe_place(ahead, pools)
        alike["" if group.is_served else why].append(
            each._replace(
                start=answer.expected, assumed=answer.assumed, never=never, why=why, brief=brief
            )
        )
    yield from (group._replace(requests=tuple(requests)) for requests in alike.values())


def _group(case: Case, signature: Signature, verdict: str, keys: list[str]) -> WaitingGroup:
    requests = ((key, case.find(key)) for key in keys)
    return WaitingGroup(
        signature=signature,
        verdict=verdict,
        is_served=verdict in SERVED,
        long_seconds=_long_seconds(case.fleet, signature),
        requests=tuple(
            WaitingRequest(
                key,
                found[0].pending_since if found else None,
                case.expected_start(key),
                package_of(found[0]) if found else "",
                case.assumed_start(key),
                (found[0].requester if found else "") or "",
            )
            for key, found in requests
        ),
    )


def _long_seconds(fleet: Fleet, signature: Signature) -> int:
    """Return the seconds after which a request with this signature has waited long."""
    pools = (fleet.pools.get(name) for name in signature.pools)
    targets = (pool.target_wait for pool in pools if isinstance(pool, Pool))
    return min((target for target in targets if target is not None), default=LONG_SECONDS)


def _explain_firsts(
    case: Case, groups: list[WaitingGroup]
) -> Iterator[tuple[str, Explanation, _Helps]]:
    """Yield (request, explanation, helpful edits) for the first request of each group."""
    size = sum(s.count for s in case.plan.signatures) + len(case.plan.workers)
    replans = Replans(min(MOST_REPLANS, _MAX_WORK // (size + 1)))
    for number, group in enumerate(groups):
        fair = max(FEWEST_PLANS, replans.left // (len(groups) - number))
        with replans.share(fair) as given:
            key = group.requests[0].key
            remedies = find_remedies(case, key, given)
            answer = explain_one(case, group.signature, key, given, remedies)
            steps = tuple(step for step in answer.next_steps if step != ENDED)
            yield key, answer.altered(next_steps=steps), _find_helps(case, key, remedies, given)
