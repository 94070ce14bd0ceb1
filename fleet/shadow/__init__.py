"""This module compares what a Resalloc did with what fleet would have done in its place.

Resalloc keeps no times. What was waited, run and paid is the sum over looks of what was there,
times how long each look stands for; both sides are measured in the same way.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from decimal import Decimal

from pydantic import Field

from fleet.facts.values import Moment, Value
from fleet.plan import Plan

_HOUR = 3600


class SeenTicket(Value):
    """A ticket that is open at Resalloc."""

    id: int
    tags: tuple[str, ...]
    sandbox: str = ""
    waits: bool = Field(description="Whether it has no machine yet.")


class Seen(Value):
    """What there is at a Resalloc."""

    tickets: tuple[SeenTicket, ...] = ()
    machines: dict[str, int] = Field(
        default_factory=dict, description="Pool to its machines that have not ended."
    )


class Side(Value):
    """What one of the two has at a moment."""

    waiting: int = Field(description="Tickets without a machine.")
    machines: dict[str, int] = Field(description="Pool to its machines, those that start too.")
    cost: Decimal = Field(description="What these cost an hour.")


class Look(Value):
    """Both sides at a moment; `seconds` is how long it stands for."""

    time: Moment
    seconds: int
    opened: int = Field(description="Tickets that were not there at the look before.")
    currency: str
    unpriced: tuple[str, ...] = Field(description="Pools of Resalloc without a price of ours.")
    resalloc: Side
    fleet: Side


class Total(Value):
    """What one of the two came to in a day, in hours and money."""

    waited: Decimal = Field(description="Hours that tickets waited, all together.")
    machines: dict[str, Decimal] = Field(description="Pool to the hours of its machines.")
    cost: Decimal


class Day(Value):
    """One day in UTC, as far as it was watched."""

    date: str
    watched: int = Field(description="Seconds that looks stand for.")
    opened: int
    currency: str
    unpriced: tuple[str, ...]
    resalloc: Total
    fleet: Total


def look_of(seen: Seen, plan: Plan, *, waiting: int, opened: int, seconds: int) -> Look:
    """Return both sides once a plan was carried out."""
    known = {pool.pool: pool for pool in plan.pools}
    priced = {name: pool.price for name, pool in known.items() if "price" not in pool.not_known}
    ours = {
        name: pool.busy + pool.idle + pool.starting + pool.other + pool.create - pool.delete
        for name, pool in known.items()
    }
    theirs = {
        pool: priced[name] for pool in seen.machines if (name := _ours(pool, priced)) in priced
    }
    costs = [theirs.get(pool, Decimal(0)) * count for pool, count in seen.machines.items()]
    return Look(
        time=plan.time,
        seconds=seconds,
        opened=opened,
        currency=plan.currency,
        unpriced=tuple(sorted(seen.machines.keys() - theirs.keys())),
        resalloc=Side(
            waiting=sum(ticket.waits for ticket in seen.tickets),
            machines=seen.machines,
            cost=sum(costs, Decimal(0)),
        ),
        fleet=Side(
            waiting=waiting,
            machines={name: count for name, count in ours.items() if count},
            cost=sum((pool.cost_after for pool in known.values()), Decimal(0)),
        ),
    )


def _ours(pool: str, known: Container[str]) -> str:
    """Return how a pool of Resalloc is called here: machines of a cloud have no `_` in names."""
    return pool if pool in known else pool.lower().replace("_", "-")


def days_of(looks: Iterable[Look]) -> tuple[Day, ...]:
    """Return what both sides came to, day by day."""
    of_day: defaultdict[str, list[Look]] = defaultdict(list)
    for look in looks:
        of_day[f"{look.time:%Y-%m-%d}"].append(look)
    return tuple(_day(date, own) for date, own in sorted(of_day.items()))


def _day(date: str, looks: list[Look]) -> Day:
    return Day(
        date=date,
        watched=sum(look.seconds for look in looks),
        opened=sum(look.opened for look in looks),
        currency=looks[-1].currency,
        unpriced=tuple(sorted({pool for look in looks for pool in look.unpriced})),
        resalloc=_total([(look.seconds, look.resalloc) for look in looks]),
        fleet=_total([(look.seconds, look.fleet) for look in looks]),
    )


def _total(sides: list[tuple[int, Side]]) -> Total:
    machines: Counter[str] = Counter()
    for seconds, side in sides:
        machines.update({pool: count * seconds for pool, count in side.machines.items()})
    return Total(
        waited=_hours(sum(seconds * side.waiting for seconds, side in sides)),
        machines=_in_hours(machines),
        cost=sum((_hours(seconds) * side.cost for seconds, side in sides), Decimal(0)),
    )


def _in_hours(seconds: Mapping[str, int]) -> dict[str, Decimal]:
    return {pool: _hours(total) for pool, total in sorted(seconds.items())}


def _hours(seconds: int) -> Decimal:
    return Decimal(seconds) / _HOUR
