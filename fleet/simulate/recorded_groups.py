"""Track single requests of a group: a queue reports the oldest one and the number of equal ones.

Groups are compared from observation to observation. A running request that no queue reported was
the oldest of its group. The oldest other requests disappear first; an increase is new requests.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from itertools import count

from fleet.model.facts import Request, Work, World

_Likeness = tuple[str, tuple[str, ...], tuple[str, ...], int, str | None, str | None, int | None]
_Hidden = dict[_Likeness, list[tuple[str, Request]]]
"""Key of a group of equal requests to its unreported requests, oldest first."""


class Groups:
    """The waiting requests in groups of equal requests, with an identity for each request."""

    def __init__(self, alive: Collection[str]) -> None:
        """Start empty. `alive` is a live view of the keys of waiting and running requests."""
        self._alive = alive
        self._hidden: defaultdict[str, _Hidden] = defaultdict(dict)
        self._keys: dict[str, str] = {}
        """`queue/id` to the key that the request had before the queue reported its id."""
        self._numbers = count(1)
        self._before: datetime | None = None

    def key_of_running(self, named: str, work: Work | None) -> str:
        """Return the key of a running request. `named` is its `queue/id`."""
        if self._is_unknown(named) and work is not None:
            for hidden in self._hidden[named.partition("/")[0]].values():
                if hidden and _is_work_of(hidden[0][1], work):
                    self._keys[named], _ = hidden.pop(0)
                    break
        return self._keys.get(named, named)

    def waiting(self, world: World) -> Iterator[tuple[str, str, Request]]:
        """Yield (key, queue, request) for each waiting request of an observation."""
        for queue, demand in world.demands():
            known, self._hidden[queue] = self._hidden[queue], {}
            alike: defaultdict[_Likeness, list[Request]] = defaultdict(list)
            for each in demand.requests:
                alike[_likeness(each)].append(each)
            for likeness, group in alike.items():
                hidden = known.get(likeness, [])
                for each in group:
                    named = f"{queue}/{each.id}"
                    if hidden and self._is_unknown(named):
                        self._take_name(named, each, hidden)
                    yield self._keys.get(named, named), queue, each
                more = sum(each.count for each in group) - len(group)
                del hidden[: max(0, len(hidden) - more)]
                turns = range(len(hidden) + 1, more + 1)
                hidden += [self._create_request(world, queue, group[0], nth) for nth in turns]
                self._hidden[queue][likeness] = hidden
                yield from ((key, queue, each) for key, each in hidden)
        self._before = world.time

    def forget(self) -> None:
        """Forget the ids of requests that no longer wait or run."""
        self._keys = {named: key for named, key in self._keys.items() if key in self._alive}

    def _is_unknown(self, named: str) -> bool:
        return named not in self._keys and named not in self._alive

    def _take_name(self, named: str, request: Request, hidden: list[tuple[str, Request]]) -> None:
        """Match a newly reported request to the oldest unreported one, unless it is new."""
        since = request.pending_since
        if since is not None and self._before is not None and since <= self._before:
            self._keys[named], _ = hidden.pop(0)

    def _create_request(
        self, world: World, queue: str, oldest: Request, nth: int
    ) -> tuple[str, Request]:
        """Return an unreported request of a group: number `nth` after the oldest request."""
        since = oldest.pending_since
        if since is not None:
            if self._before is not None:
                since = min(max(since, self._before), world.time)
                since += (world.time - since) / 2
            # A queue serves its oldest request before requests of the same time.
            since += timedelta(microseconds=nth)
        name = f"{oldest.id}#{next(self._numbers)}"
        return f"{queue}/{name}", oldest.altered(id=name, count=1, pending_since=since)


def _likeness(each: Request) -> _Likeness:
    """Return the key of a request's group: the fields that all requests of a group share."""
    about = (each.task, each.required, each.provided, each.priority)
    return (*about, each.requester, each.owner, each.deadline_seconds)


def _is_work_of(request: Request, work: Work) -> bool:
    return (request.task, request.required) == (work.task, work.required)
