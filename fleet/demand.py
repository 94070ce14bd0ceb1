"""This module turns what waits into signatures: requests that this fleet.yaml treats alike.

The queue's own order decides who is served first: priority, then age, then id.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.census import demand_trouble
from fleet.facts import Demand, Request, World
from fleet.plan import digest
from fleet.schema.model import Fleet
from fleet.tagrules import Ask, Offer, satisfies

Order = tuple[int, str, str, int, str, int]
_MOST_DIGITS = 20
"""A longer id is no number of any queue; Python refuses to convert very long ones."""


@dataclass(frozen=True)
class Supply:
    """Workers of one pool that offer the same; `key` is the pool's name for its future ones."""

    pool: str
    queues: frozenset[str]
    offer: Offer
    units: tuple[str, ...] = ()


@dataclass(frozen=True, order=True)
class Ordered:
    """One waiting request and its place in the queue's order."""

    order: Order
    key: str


@dataclass(frozen=True)
class Signed:
    """Requests of one signature, in the order they are served."""

    id: str
    queue: str
    ask: Ask
    priority: int
    requests: tuple[Ordered, ...]
    workers_of: tuple[str, ...]
    machines_of: tuple[str, ...]


def sign_demand(fleet: Fleet, world: World, supplies: Mapping[str, Supply]) -> tuple[Signed, ...]:
    """Return the readable demand of every queue by signature, in the order of service."""
    looks_at_provided = any(supply.offer.requires for supply in supplies.values())
    groups: defaultdict[tuple[str, frozenset[str], frozenset[str], int], list[Ordered]]
    groups = defaultdict(list)
    for queue, reading in sorted(world.queues.items()):
        if not isinstance(reading.demand, Demand) or demand_trouble(fleet, world, queue):
            continue
        for request in _each_once(reading.demand.requests):
            provided = frozenset(request.provided if looks_at_provided else ())
            shape = (queue, frozenset(request.required), provided, request.priority)
            groups[shape].extend(_ordered(queue, request))
    signed = [
        _sign(Ask(required, provided), queue, priority, requests, supplies)
        for (queue, required, provided, priority), requests in groups.items()
    ]
    return tuple(sorted(signed, key=lambda s: (s.requests[0].order, s.id)))


def _each_once(requests: Iterable[Request]) -> Iterable[Request]:
    """Return the requests without repeats of an id, as pages that shift while they are read."""
    found: dict[str, Request] = {}
    for request in requests:
        known = found.setdefault(request.id, request)
        if known is not request:
            both = (known, request)
            found[request.id] = min(both, key=lambda r: (-r.priority, r.model_dump_json()))
    return found.values()


def _ordered(queue: str, request: Request) -> list[Ordered]:
    since = request.pending_since.isoformat() if request.pending_since else "~"
    is_number = request.id.isdecimal() and len(request.id) <= _MOST_DIGITS
    number = int(request.id) if is_number else 0
    single = request.count == 1
    return [
        Ordered(
            key=f"{queue}/{request.id}" if single else f"{queue}/{request.id}#{nth}",
            order=(-request.priority, since, queue, number, request.id, nth),
        )
        for nth in range(1, request.count + 1)
    ]


def _sign(
    ask: Ask,
    queue: str,
    priority: int,
    requests: list[Ordered],
    supplies: Mapping[str, Supply],
) -> Signed:
    fitting = [
        (key, supply)
        for key, supply in sorted(supplies.items())
        if queue in supply.queues and satisfies(ask, supply.offer)
    ]
    shape = [queue, sorted(ask.required), sorted(ask.provided), priority]
    return Signed(
        id=digest(shape)[:12],
        queue=queue,
        ask=ask,
        priority=priority,
        requests=tuple(sorted(requests, key=lambda request: request.order)),
        workers_of=tuple(key for key, _ in fitting),
        machines_of=tuple(
            key
            for key, supply in fitting
            if key == supply.pool and _may_call_up(ask, supply.offer)
        ),
    )


def _may_call_up(ask: Ask, offer: Offer) -> bool:
    """Say whether a request may have a machine made: on demand only for who asks for the tag."""
    return not offer.on_demand or bool(offer.on_demand & ask.required)
