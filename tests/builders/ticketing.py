"""Build tickets, what is remembered of machines, and free machines, for tests."""

from collections.abc import Iterable, Mapping

from pydantic import TypeAdapter

from fleet.model.facts import Listing, WorkerInputs, World
from fleet.model.tickets import Ticket
from fleet.reconcile import find_leases
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk
from fleet.tickets.tenancy import Tenancy
from tests.builders import NOW, a_listing, a_machine, a_stack, ago, some_inputs

_TICKET = TypeAdapter(Ticket)
_TENANCY = TypeAdapter(Tenancy)


def a_ticket(number: int = 1, **overrides: object) -> Ticket:
    """Return a ticket that waits for five minutes, of ada."""
    defaults: dict[str, object] = {
        "id": number,
        "tags": ("arch_x86_64",),
        "opened_at": ago(minutes=5),
        "heard_at": ago(minutes=5),
        "submitter": "ada",
        "owner": "ada",
    }
    return _TICKET.validate_python(defaults | overrides)


def a_tenancy(**overrides: object) -> Tenancy:
    """Return what is remembered of a machine that never had a ticket."""
    return _TENANCY.validate_python(
        {"machine": "m1", "since": NOW, "pool": "powerful"} | overrides
    )


def used(**overrides: object) -> Tenancy:
    """Return what is remembered of a machine that one ticket had, until a minute ago."""
    had = {"sandbox": "ada/ping", "uses": 1, "first_used": ago(minutes=9)}
    return a_tenancy(**({"since": ago(minutes=1)} | had | overrides))


def listing_of(**machine: object) -> Listing:
    """Return a provider that lists one machine of `powerful`, at which no worker registers."""
    given = {"name": "debian-ci-powerful-0001", "pool": "powerful", "type": "ccx63", "id": "1"}
    return a_listing(a_machine(**(given | machine)))


def a_ticket_fleet(**overrides: object) -> Fleet:
    """Return a fleet whose pool `powerful` is ordered by tickets, at a simulated provider."""
    pool = {
        "provider": "desk",
        "machine": "ccx63",
        "image": "builder",
        "provides": ["extra_powerful"],
        "workers": {"max": 4},
        "reuse": {"opportunity": "5m"},
    }
    defaults: dict[str, object] = {
        "fleet": "debian-ci",
        "providers": {"desk": {"kind": "sim"}},
        "queues": {"tickets": {"kind": "tickets"}},
        "images": {"builder": {"existing": {"desk": "b-1"}, "provides": ["arch_x86_64"]}},
        "pools": {"powerful": pool | dict_of(overrides.pop("pool", {}))},
        "tags": {"extra_powerful": {"on_demand": True} | dict_of(overrides.pop("tag", {}))},
    }
    return Fleet.model_validate(defaults | overrides)


def a_ticket_world(
    fleet: Fleet,
    tickets: Iterable[Ticket],
    pool_of: Mapping[str, str],
    tenancies: Iterable[Tenancy] = (),
) -> World:
    """Return a world with these tickets and recorded machines, each of a pool."""
    machines = []
    inputs: dict[str, list[WorkerInputs]] = {pool: [] for pool in pool_of.values()}
    for name, pool in pool_of.items():
        kind = fleet.dynamic_pools[pool].machine
        machines.append(a_machine(name=name, pool=pool, id=name, type=kind))
        inputs[pool].append(some_inputs(name=name, type=kind))
    stacks = {
        pool: a_stack(provider="desk", workers=(*each,), ids={i.name: i.name for i in each})
        for pool, each in inputs.items()
    }
    return World(
        fleet="debian-ci",
        time=NOW,
        queues={"tickets": read_desk(fleet, tickets, tenancies, NOW)},
        providers={"desk": a_listing(*machines)},
        stacks=stacks,
    )


def leases_of(fleet: Fleet, world: World) -> list[tuple[int, str]]:
    """Return which tickets get which free machines, in order."""
    leases = find_leases(fleet, world)
    return [(int(each.ticket.partition("/")[2]), each.machine) for each in leases]


def dict_of(value: object) -> dict[str, object]:
    """Return what has to be a mapping."""
    assert isinstance(value, dict)
    return value
