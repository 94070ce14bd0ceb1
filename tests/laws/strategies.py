"""Make worlds for the laws: small fleets in which a lot can go wrong."""

from datetime import timedelta
from decimal import Decimal

from hypothesis import strategies as st

from fleet.model.facts import (
    Charge,
    Demand,
    Ledger,
    QueueReading,
    Request,
    Unknown,
    Worker,
    WorkerState,
    World,
)
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
    for name in draw(st.sets(st.sampled_from(POOLS), min_size=1)):
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


def shuffled(world: World) -> World:
    """Return the same world, observed in the opposite order."""
    queues = {
        name: reading.altered(
            demand=reading.demand.altered(requests=tuple(reversed(reading.demand.requests)))
            if isinstance(reading.demand, Demand)
            else reading.demand
        )
        for name, reading in reversed(list(world.queues.items()))
    }
    providers = {
        name: listing
        if isinstance(listing, Unknown)
        else listing.altered(
            machines=tuple(reversed(listing.machines)),
            workers=None if listing.workers is None else tuple(reversed(listing.workers)),
        )
        for name, listing in reversed(list(world.providers.items()))
    }
    stacks = world.stacks
    if isinstance(stacks, dict):
        stacks = dict(reversed(list(stacks.items())))
    return world.altered(queues=queues, providers=providers, stacks=stacks)


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
