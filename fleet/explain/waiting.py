"""The waiting requests by outcome and age, with explanations of the longest waits."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.helps import add_gains, find_helps
from fleet.explain.request import (
    ENDED,
    FEWEST_PLANS,
    FIRST_READ,
    MOST_REPLANS,
    SERVED,
    by_outcome,
    explain_alike,
    explain_one,
    is_never,
    places_of,
    unknown_of,
)
from fleet.explain.unblock import Remedy, find_remedies
from fleet.explain.values import Explanation
from fleet.explain.what_if import Replans
from fleet.model.plan import Signature
from fleet.planner.forecast import registered_workers
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.names import package_of
from fleet.words.waiting import describe_place, describe_repair

MOST_EXPLAINED = 100
"""Maximum number of groups with and without a worker whose first request has the reason of each
pool; the groups without a worker also have suggestions."""
_MOST_PLACES = 500
"""Maximum number of requests with the cost on each machine type, which takes some milliseconds."""
LONG_SECONDS = 3600
"""Seconds after which a wait is long if no suitable pool has a `target_wait`."""
_MAX_WORK = 5_000
"""Maximum requests and workers in all plans of the searches for the first requests of groups, and
in those of the searches for the other requests. Both take one or two seconds."""


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
    remedies: dict[str, Sequence[Remedy]] = {}
    size = sum(s.count for s in case.plan.signatures) + len(case.plan.workers)
    plans = min(MOST_REPLANS, _MAX_WORK // (size + 1))
    replans = Replans(plans)
    for key, answer, found in _explain_firsts(case, unserved[:most], replans):
        explained[key], remedies[key] = answer, found
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
    replans.left += plans
    # Small groups are first, because they leave trial plans to the large ones.
    in_turn = sorted(unserved[:most], key=lambda group: len(group.requests))
    for number, group in enumerate(in_turn):
        keys = [request.key for request in group.requests]
        with replans.share(replans.left // (len(in_turn) - number)) as given:
            helps = find_helps(case, keys, remedies[keys[0]], given)
        explained |= {key: add_gains(case, explained[key], helps) for key in keys}
    shown = (each for group in groups for each in _set_starts(case, group, explained))
    return WaitingExplanations(tuple(shown), explained, tuple(_running(case)))


def _explain_briefly(case: Case, group: WaitingGroup) -> Explanation:
    """Return the common part of the explanations of a group, without the reasons of pools."""
    unserved = case.unserved.get(group.requests[0].key)
    never = is_never(case, group.signature, unserved)
    return Explanation(kind="request", name="", headline="", never=never)


def _running(case: Case) -> Iterator[RunningBuild]:
    """Yield the running builds, with their expected ends."""
    known, standing = registered_workers(case.fleet, case.world), case.forecast.standing
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
    case: Case, groups: list[WaitingGroup], replans: Replans
) -> Iterator[tuple[str, Explanation, Sequence[Remedy]]]:
    """Yield (request, explanation, suggestions) for the first request of each group."""
    for number, group in enumerate(groups):
        fair = max(FEWEST_PLANS, replans.left // (len(groups) - number))
        with replans.share(fair) as given:
            key = group.requests[0].key
            remedies = find_remedies(case, key, given)
            answer = explain_one(case, group.signature, key, given, remedies)
            steps = [step for step in answer.next_steps if step not in (ENDED, FIRST_READ)]
            steps += map(describe_repair, unknown_of(case, case.unserved.get(key)))
            yield key, answer.altered(next_steps=tuple(steps)), remedies
