"""Make worlds for the laws: small fleets in which a lot can go wrong."""

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from fleet.model.facts import (
    Charge,
    Ledger,
    QueueReading,
    Request,
    Unknown,
    Worker,
    WorkerState,
    World,
)
from fleet.model.values import Value
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk
from tests.builders import (
    NOW,
    a_listing,
    a_machine,
    a_pool,
    a_request,
    a_sim_fleet,
    a_sim_world,
    a_stack,
    a_worker,
    ago,
    some_inputs,
)
from tests.builders.ticketing import a_ticket, a_ticket_fleet, used

TAGS = ("amd64", "arm64", "big", "powerful")
POOLS = ("arm", "builders", "powerful")

tag_sets = st.sets(st.sampled_from(TAGS), max_size=2).map(lambda tags: tuple(sorted(tags)))
ages = st.integers(0, 7200).map(lambda seconds: NOW - timedelta(seconds=seconds))

_TEAMS = "blue", "green"
_HOURS = st.integers(0, 12)


@st.composite
def pools(draw: st.DrawFn) -> dict[str, object]:
    """Return one to three pools with their limits."""
    made: dict[str, object] = {}
    # The order of a set is another one in each process.
    for name in sorted(draw(st.sets(st.sampled_from(POOLS), min_size=1))):
        most = draw(st.integers(0, 4))
        on_demand = name == "powerful"
        made[name] = a_pool(
            provider="desk",
            machine=draw(st.sampled_from(["ccx13", "ccx33", "ccx63"])),
            max=most,
            min=0 if on_demand else draw(st.integers(0, most)),
            spare=0 if on_demand else draw(st.integers(0, most)),
            max_starting=draw(st.none() | st.integers(0, 3)),
            provides=[*draw(tag_sets), *(["powerful"] if on_demand else [])],
            mode=draw(st.sampled_from(["apply", "apply", "apply", "drain", "pause", "observe"])),
        )
    return made


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    """Return a fleet at the simulated provider."""
    return a_sim_fleet(
        pools=draw(pools()),
        tags={"powerful": {"on_demand": True, "exclusive": draw(st.booleans())}},
    )


@st.composite
def demands(draw: st.DrawFn, most: int = 8) -> tuple[Request, ...]:
    """Return waiting requests."""
    count = draw(st.integers(0, most))
    return tuple(
        a_request(
            id=str(number),
            required=draw(tag_sets),
            priority=draw(st.integers(-1, 1)),
            pending_since=draw(ages),
        )
        for number in range(count)
    )


@st.composite
def workers_of(draw: st.DrawFn, pool: str) -> tuple[Worker, ...]:
    """Return workers of one pool, each with its machine."""
    made = []
    for number in range(1, draw(st.integers(0, 4)) + 1):
        state = draw(st.sampled_from(list(WorkerState)))
        made.append(
            a_worker(
                name=f"debian-ci-{pool}-{number}",
                pool=pool,
                state=state,
                running="90" if state is WorkerState.BUSY else None,
                draining=draw(st.booleans()),
                since=draw(st.none() | ages),
            )
        )
    return tuple(made)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Return a world of every pool, configured or not, in which a source may be blind."""
    everyone = tuple(worker for pool in POOLS for worker in draw(workers_of(pool)))
    world = a_sim_world(*everyone, requests=draw(demands()))
    blind = draw(st.sampled_from(["none", "none", "none", "queue", "provider", "stack"]))
    dark = Unknown(unknown="no answer")
    if blind == "queue":
        return world.altered(queues={"debian": QueueReading(demand=dark, workers=None)})
    if blind == "provider":
        return world.altered(providers={"desk": dark})
    if blind == "stack" and isinstance(world.stacks, dict):
        return world.altered(stacks=world.stacks | {"builders": dark})
    return world


IN_ORDER = {
    ("Charge", "seconds"): "of an hour, a day and a month, in this order",
    ("Charge", "money"): "of an hour, a day and a month, in this order",
    ("Request", "task_data"): "JSON of the queue: only it knows whether an order has a meaning",
    ("SharedResource", "inputs"): "JSON for the provider, which alone knows what an order means",
}
"""Lists of a world whose order has a meaning, by model and field, with the reason."""


def shuffled(world: World, dice: Random | None = None) -> World:
    """Return the same world with every list and table in another order: the opposite one."""
    return World.model_validate(_shuffled(world, dice))


def _shuffled(value: object, dice: Random | None) -> object:
    # A list that is added to a world later is shuffled too, unless its order has a meaning.
    match value:
        case Value():
            kind = type(value).__name__
            return {
                name: part if (kind, name) in IN_ORDER else _shuffled(part, dice)
                for name, part in value
            }
        case dict():
            return {key: _shuffled(value[key], dice) for key in _other_order(list(value), dice)}
        case tuple() | list():
            return tuple(_shuffled(part, dice) for part in _other_order(list(value), dice))
    return value


def _other_order(parts: list[Any], dice: Random | None) -> list[Any]:
    return dice.sample(parts, len(parts)) if dice else parts[::-1]


def whole(kind: Any, name: str = "", nth: int = 0) -> Any:  # noqa: ANN401 - a type of any value
    """Return an example of a type in which every list and table has two entries."""
    while get_origin(kind) in (Annotated, Union, UnionType):
        kinds = get_args(kind)[:1] if get_origin(kind) is Annotated else get_args(kind)
        kinds = tuple(each for each in kinds if each not in (NoneType, Unknown))
        kind = kinds[nth % len(kinds)]
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return arguments[nth % len(arguments)]
    if get_origin(kind) is tuple:
        inner = [arguments[0]] * 2 if arguments[1] is ... else arguments
        return tuple(whole(each, name, 2 * nth + n) for n, each in enumerate(inner))
    if get_origin(kind) is dict:
        keys = [whole(arguments[0], name, n) for n in range(2)]
        return {key: whole(arguments[1], name, 2 * nth + n) for n, key in enumerate(keys)}
    if issubclass(kind, Value):
        fields = kind.model_fields.items()
        return kind.model_validate({key: whole(each.annotation, key, nth) for key, each in fields})
    return _EXAMPLES[next(each for each in _EXAMPLES if issubclass(kind, each))](kind, name, nth)


_EXAMPLES: dict[type, Callable[[Any, str, int], object]] = {
    Enum: lambda kind, _, nth: list(kind)[nth % len(kind)],
    bool: lambda _, __, nth: bool(nth % 2),
    int: lambda _, __, nth: nth + 1,
    Decimal: lambda _, __, nth: Decimal(nth + 1),
    datetime: lambda _, __, nth: NOW - timedelta(minutes=nth + 1),
    str: lambda _, name, nth: f"{name}-{nth}",
    object: lambda _, __, nth: {"any": [nth]},
}


@st.composite
def budgeted(draw: st.DrawFn) -> tuple[Fleet, World]:
    """Return tickets of two teams with budgets in money and hours, some with a machine already."""
    limits: dict[str, dict[str, object]] = {
        "blue": {"per_hour": f"{draw(_HOURS) + 1} EUR", "per_day": f"{draw(_HOURS) + 5} EUR"},
        "green": {"machine_hours_per_day": draw(_HOURS) + 1},
    }
    fleet = a_ticket_fleet(
        providers={
            "desk": {"kind": "sim", "billing": {"increment": draw(st.sampled_from(["1s", "1h"]))}}
        },
        durations={"any": f"{draw(_HOURS) + 1}h"},
        budgets={
            team: limits[team] | {"team": team, "tags": ["extra_powerful"]} for team in _TEAMS
        },
        pool={"machine": {"type": "ccx63", "price": "0.77 EUR/h"}, "workers": {"max": 9}},
    )
    names = [f"debian-ci-powerful-{nth:04}" for nth in range(1, draw(st.integers(0, 3)) + 1)]
    tickets = [
        a_ticket(nth, team=draw(st.sampled_from(_TEAMS)), tags=("arch_x86_64", "extra_powerful"))
        for nth in range(10, 10 + draw(st.integers(1, 6)))
    ]
    tickets += [
        a_ticket(
            nth, team=draw(st.sampled_from(_TEAMS)), machine=name, state="ready", heard_at=NOW
        )
        for nth, name in enumerate(names)
    ]
    charges = tuple(
        Charge(pool="powerful", team=team, seconds=(h * 3600,) * 3, money=(Decimal(h) / 2,) * 3)
        for team in _TEAMS
        if (h := draw(_HOURS))
    )
    machines = [a_machine(name=name, pool="powerful", type="ccx63", id=name) for name in names]
    return fleet, World(
        fleet="debian-ci",
        time=NOW,
        ledger=Ledger(charged_until=ago(minutes=1), charges=charges),
        queues={"tickets": read_desk(fleet, tickets, [used(machine=n) for n in names], NOW)},
        providers={"desk": a_listing(*machines)},
        stacks={
            "powerful": a_stack(
                provider="desk",
                workers=tuple(some_inputs(name=name, type="ccx63") for name in names),
                ids={name: name for name in names},
            )
        },
    )
