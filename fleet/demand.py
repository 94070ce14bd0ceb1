"""This module turns what waits into signatures: requests that this fleet.yaml treats alike.

The queue's own order decides who is served first: priority, then age, then id.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fleet.census import demand_trouble
from fleet.facts import Demand, Request, Unknown, World
from fleet.plan import digest
from fleet.schema.model import Fleet
from fleet.tagrules import Ask, Offer
from fleet.tagrules.asking import Asking, Difference, Judge, Refusal
from fleet.tagrules.bulk import Matcher
from fleet.tagrules.numbers import write_minimums
from fleet.tagrules.told import told_of

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


class Shape(NamedTuple):
    """What requests of one signature have in common, queue and priority aside."""

    ask: Ask
    refused: tuple[Refusal, ...]
    differences: tuple[Difference, ...]
    held: bool


@dataclass(frozen=True)
class Signed:
    """Requests of one signature, in the order they are served."""

    id: str
    queue: str
    ask: Ask
    priority: int
    requests: tuple[Ordered, ...]
    refused: tuple[Refusal, ...]
    differences: tuple[Difference, ...]
    held: bool
    """The queue stored a tag that was asked for without permission: nothing may serve it."""
    workers_of: tuple[str, ...]
    machines_of: tuple[str, ...]


def sign_demand(fleet: Fleet, world: World, supplies: Mapping[str, Supply]) -> tuple[Signed, ...]:
    """Return the readable demand of every queue by signature, in the order of service."""
    looks_at_provided = any(supply.offer.requires for supply in supplies.values())
    judge = judge_of(fleet, world, with_provided=looks_at_provided)
    groups: defaultdict[tuple[str, Shape, int], list[Ordered]] = defaultdict(list)
    shapes: dict[int, Shape] = {}  # the judge keeps every asking, so that no id comes twice
    for queue, reading in sorted(world.queues.items()):
        demand = reading.demand
        if not isinstance(demand, Demand) or demand_trouble(fleet, world, queue):
            continue
        told = told_of(demand)
        for request in _each_once(demand.requests):
            asking = judge.ask_of_alike(request, told)
            shape = shapes.get(id(asking))
            if shape is None:
                shape = shapes[id(asking)] = _shape(asking)
            groups[queue, shape, request.priority].extend(_ordered(queue, request))
    offers = {
        queue: Matcher({key: s.offer for key, s in supplies.items() if queue in s.queues})
        for queue in world.queues
    }
    signed = []
    for (queue, shape, priority), requests in groups.items():
        able = () if shape.held else offers[queue].fitting(shape.ask)
        fitting = {key: supplies[key] for key in able}
        signed.append(_sign(shape, queue, priority, requests, fitting))
    return tuple(sorted(signed, key=lambda s: (s.requests[0].order, s.id)))


def judge_of(fleet: Fleet, world: World, *, with_provided: bool = True) -> Judge:
    """Return who says what the requests of a world ask for, on its day."""
    members = world.members
    known = (
        members if isinstance(members, Unknown) else {g: frozenset(u) for g, u in members.items()}
    )
    return Judge(fleet, known, world.time.date(), with_provided=with_provided)


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


def _shape(asking: Asking) -> Shape:
    return Shape(asking.ask, asking.refused, asking.differences, asking.held)


def _sign(
    shape: Shape,
    queue: str,
    priority: int,
    requests: list[Ordered],
    fitting: Mapping[str, Supply],
) -> Signed:
    ask = shape.ask
    said: list[object] = [queue, required_of(ask), sorted(ask.provided), priority]
    if shape.refused or shape.differences:
        said.append([each.because for each in shape.refused])
        said.append([each.because for each in shape.differences])
    return Signed(
        id=digest(said)[:12],
        queue=queue,
        ask=ask,
        priority=priority,
        requests=tuple(sorted(requests, key=lambda request: request.order)),
        refused=shape.refused,
        differences=shape.differences,
        held=shape.held,
        workers_of=tuple(fitting),
        machines_of=tuple(
            key
            for key, supply in fitting.items()
            if key == supply.pool and _may_call_up(ask, supply.offer)
        ),
    )


def required_of(ask: Ask) -> list[str]:
    """Return all that a request requires, minimums among it, sorted."""
    return sorted((*ask.required, *write_minimums(ask.minimums)))


def _may_call_up(ask: Ask, offer: Offer) -> bool:
    """Say whether a request may have a machine made: on demand only for who asks for the tag."""
    return not offer.on_demand or bool(offer.on_demand & ask.required)
