"""The waiting requests by outcome and age, with explanations of the longest waits."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from fleet.explain.case import Case
from fleet.explain.request import (
    FEWEST_PLANS,
    MOST_REPLANS,
    SERVED,
    by_outcome,
    explain_like,
    explain_one,
    without_search,
)
from fleet.explain.values import Explanation
from fleet.explain.what_if import Replans
from fleet.model.plan import Signature
from fleet.schema.findings import Path
from fleet.schema.model import Fleet, Pool
from fleet.tagrules.names import package_of

MOST_EXPLAINED = 200
LONG_SECONDS = 3600
"""Seconds after which a wait is long if no suitable pool has a `target_wait`."""
_MAX_WORK = 5_000
"""Maximum requests and workers in all plans of the searches. This takes one or two seconds."""


class WaitingRequest(NamedTuple):
    """A request with the start of its wait, its expected start, and its package."""

    key: str
    since: datetime | None
    start: datetime | None
    package: str = ""
    assumed: datetime | None = None
    """The start by assumed durations; None if a better estimate is known."""


class WaitingGroup(NamedTuple):
    """Requests with equal tags and priority and the same outcome, in service order."""

    signature: Signature
    verdict: str
    """The outcome in words."""
    is_served: bool
    """True if the requests have a worker, or if a machine is being created for them."""
    path: Path
    """The path of the key of fleet.yaml that decides the outcome; empty if no key does."""
    long_seconds: int
    """Seconds after which a wait is long: the smallest `target_wait`, or an hour."""
    requests: tuple[WaitingRequest, ...]

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
    """All waiting requests, and explanations of some of them."""

    groups: tuple[WaitingGroup, ...] = ()
    """Groups without a worker first, then by priority and number of requests."""
    explained: Mapping[str, Explanation] = {}
    """Request to explanation: the first request per group without a worker, and longest waits."""


def waits_of(case: Case, *, most: int = MOST_EXPLAINED) -> WaitingExplanations:
    """Return the waiting requests with at most `most` explanations, half of them per group."""
    groups = sorted(
        (_group(case, *each) for each in by_outcome(case)),
        key=lambda g: (g.is_served, -g.signature.priority, -len(g.requests)),
    )
    unserved = [group for group in groups if not group.is_served]
    explained = dict(_explain_firsts(case, unserved[: most // 2]))
    longest = sorted(
        (request.since, group.signature.id, request.key, number)
        for number, group in enumerate(groups)
        for request in group.requests
        if request.since is not None and request.key not in explained
    )
    for _, _, key, number in longest[: most - len(explained)]:
        group = groups[number]
        first = explained.get(group.requests[0].key) if not group.is_served else None
        if first is not None:
            explained[key] = explain_like(case, group.signature, key, first)
        else:
            explained[key] = explain_one(case, group.signature, key, Replans(0))
    return WaitingExplanations(tuple(_set_starts(group, explained) for group in groups), explained)


def _set_starts(group: WaitingGroup, explained: Mapping[str, Explanation]) -> WaitingGroup:
    """Return the group with the expected starts that the explanations have."""
    answers = ((each, explained.get(each.key)) for each in group.requests)
    requests = tuple(
        each if answer is None else each._replace(start=answer.expected, assumed=answer.assumed)
        for each, answer in answers
    )
    return group._replace(requests=requests)


def _group(case: Case, signature: Signature, verdict: str, keys: list[str]) -> WaitingGroup:
    unserved = case.unserved.get(keys[0])
    requests = ((key, case.find(key)) for key in keys)
    return WaitingGroup(
        signature=signature,
        verdict=verdict,
        is_served=verdict in SERVED,
        path=next(iter(unserved.paths), ()) if unserved else (),
        long_seconds=_long_seconds(case.fleet, signature),
        requests=tuple(
            WaitingRequest(
                key,
                found[0].pending_since if found else None,
                case.expected_start(key),
                package_of(found[0]) if found else "",
                case.assumed_start(key),
            )
            for key, found in requests
        ),
    )


def _long_seconds(fleet: Fleet, signature: Signature) -> int:
    """Return the seconds after which a request with this signature has waited long."""
    pools = (fleet.pools.get(name) for name in signature.pools)
    targets = (pool.target_wait for pool in pools if isinstance(pool, Pool))
    return min((target for target in targets if target is not None), default=LONG_SECONDS)


def _explain_firsts(case: Case, groups: list[WaitingGroup]) -> Iterator[tuple[str, Explanation]]:
    """Yield (request, explanation) for the first request of each group."""
    size = sum(s.count for s in case.plan.signatures) + len(case.plan.workers)
    replans = Replans(min(MOST_REPLANS, _MAX_WORK // (size + 1)))
    for number, group in enumerate(groups):
        fair = max(FEWEST_PLANS, replans.left // (len(groups) - number))
        with replans.share(fair) as given:
            key = group.requests[0].key
            yield key, without_search(explain_one(case, group.signature, key, given))
