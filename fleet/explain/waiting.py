"""The waiting requests by outcome and age, with explanations of the longest waits."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.asked import Asked
from fleet.explain.case import Case
from fleet.explain.request import (
    ENDED,
    FEWEST_PLANS,
    FIRST_READ,
    MOST_REPLANS,
    SERVED,
    OutcomeGroup,
    by_outcome,
    explain_like,
    explain_one,
)
from fleet.explain.search import Helps, Replans, add_gains, find_helps, find_remedies
from fleet.explain.values import Explanation
from fleet.model.plan import Signature
from fleet.schema.model import Pool
from fleet.tagrules.names import package_of
from fleet.words.waiting import REPAIR, describe_place

MOST_EXPLAINED = 100
"""Maximum number of groups with and without a worker whose first request has the reason of each
pool; the groups without a worker also have suggestions."""
_MOST_PLACES = 500
"""Maximum number of requests with the cost on each machine type, which takes some milliseconds."""
LONG_SECONDS = 3600
"""Seconds after which a wait is long if no suitable pool has a `target_wait`."""
_MAX_WORK = 10_000
"""Maximum requests and workers in all trial plans of the searches, which take a few seconds."""


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
    requests: tuple[WaitingRequest, ...]

    @property
    def why(self) -> str:
        """Return why its requests wait. Each of several served requests has its own worker."""
        is_shared = self.is_served and len(self.requests) > 1
        return self.verdict if is_shared else self.requests[0].why or self.verdict

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
    outcomes = sorted(
        by_outcome(case), key=lambda g: (g.is_served, -g.signature.priority, -len(g.keys))
    )
    waiting = [each for each in outcomes if not each.is_served][:most]
    size = sum(s.count for s in case.plan.signatures) + len(case.plan.workers)
    replans = Replans(min(2 * MOST_REPLANS, _MAX_WORK // (size + 1)))
    explained: dict[str, Explanation] = {}
    found: dict[str, Helps] = {}
    # Small groups are first, because they leave trial plans to the large ones.
    for number, group in enumerate(sorted(waiting, key=lambda group: len(group.keys))):
        key = group.keys[0]
        fair = max(FEWEST_PLANS, replans.total // (len(waiting) - number) // 2)
        replans.begin(fair)
        remedies = find_remedies(case, key, replans)
        answer = explain_one(case, key, replans, remedies)
        steps = [step for step in answer.next_steps if step not in (ENDED, FIRST_READ)]
        steps += [REPAIR(reason=reason) for reason in Asked(case, key).unknown]
        explained[key] = answer.altered(next_steps=tuple(steps))
        replans.begin(fair)
        found[key] = find_helps(case, group.keys, remedies, replans)
    for group in [each for each in outcomes if each.is_served][:most]:
        explained[group.keys[0]] = explain_one(case, group.keys[0], Replans(0), ())
    unknown = Explanation(kind="request", name="", headline="")
    replans.begin(replans.total)
    for group in outcomes:
        first = explained.get(group.keys[0], unknown)
        for key in group.keys:
            if key not in explained:
                places = None if len(explained) < _MOST_PLACES else ()
                explained[key] = explain_like(case, key, first, replans, places=places)
    replans.begin(replans.total)
    for group in waiting:
        helps = found[group.keys[0]]
        explained |= {key: add_gains(case, explained[key], helps, replans) for key in group.keys}
    groups = (each for group in outcomes for each in _split_by_reason(case, group, explained))
    return WaitingExplanations(tuple(groups), explained, tuple(_list_running(case)))


def _split_by_reason(
    case: Case, group: OutcomeGroup, explained: Mapping[str, Explanation]
) -> Iterator[WaitingGroup]:
    """Yield the requests of a group per first sentence of their explanations."""
    alike: defaultdict[str, list[WaitingRequest]] = defaultdict(list)
    pools = group.signature.pools
    for key in group.keys:
        answer, about = explained[key], Asked(case, key)
        why = answer.plain[0] if answer.plain else group.verdict
        brief, request = SERVED.get(group.verdict, why), about.request
        is_timed = (answer.expected or answer.assumed) and not answer.never
        if is_timed and key in case.line and key not in case.turns:
            brief = describe_place(case.line[key].ahead, case.line[key].pools)
        alike["" if group.is_served else why].append(
            WaitingRequest(
                key,
                request.pending_since if request else None,
                answer.expected,
                package_of(request) if request else "",
                answer.assumed,
                (request.requester if request else "") or "",
                answer.never,
                why,
                brief,
            )
        )
    declared = (case.fleet.pools.get(name) for name in pools)
    targets = (pool.target_wait for pool in declared if isinstance(pool, Pool))
    long_seconds = min((each for each in targets if each is not None), default=LONG_SECONDS)
    for requests in alike.values():
        yield WaitingGroup(
            group.signature, group.verdict, group.is_served, long_seconds, tuple(requests)
        )


def _list_running(case: Case) -> Iterator[RunningBuild]:
    """Yield the running builds, with their expected ends."""
    for each in case.plan.workers:
        worker, seen = case.workers.get(each.worker), case.forecast.standing.get(each.worker)
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
