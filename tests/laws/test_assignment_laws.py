"""Whatever the tickets, machines and limits: what assignment promises of each pass."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fleet.model.facts import World
from fleet.model.tickets import Ticket
from fleet.planner.begin import begin_pool_plans
from fleet.planner.demand import sign_demand
from fleet.planner.inventory import take_inventory
from fleet.planner.layout import lay_out
from fleet.planner.limits import limits_on
from fleet.planner.staffing import find_supplies
from fleet.planner.turns import choose_leases, find_free
from fleet.schema.model import Fleet
from fleet.tickets.tenancy import Tenancy
from tests.builders import NOW, ago
from tests.builders.ticketing import a_tenancy, a_ticket, a_ticket_fleet, a_ticket_world

OWNERS = st.sampled_from(["ada", "ben", "eve"])
SANDBOXES = st.sampled_from(["", "s", "t"])
TAGS = st.sampled_from(["plain", "wanted", "either"])
PROVIDES = {
    "a": {"arch_x86_64", "plain"},
    "b": {"arch_x86_64", "plain", "either"},
    "c": {"arch_x86_64", "wanted", "either"},
}
"""Pool to its tags. Its machines are on demand for the tag `wanted`."""
POOLS = st.sampled_from([*PROVIDES])
LIMITS = st.dictionaries(
    st.sampled_from(["owner", "sandbox", "total"]), st.integers(0, 3), max_size=2
)


def a_fleet(**limits: int) -> Fleet:
    total = {"total": limits.pop("total")} if "total" in limits else {}
    return a_ticket_fleet(
        queues={"tickets": {"kind": "tickets", "limits": total | {"per": limits}}},
        pools={
            name: {
                "provider": "desk",
                "machine": "ccx63",
                "image": "builder",
                "provides": sorted(tags - {"arch_x86_64"}),
                "priorities": {"either": ord(name) % 3 - 1},
                "workers": {"max": 99},
                "reuse": {"opportunity": "1h"},
            }
            for name, tags in PROVIDES.items()
        },
        tags={"wanted": {"on_demand": True}},
    )


def leases_of(fleet: Fleet, world: World) -> dict[int, str]:
    """Return which tickets get which free machines, if no plan withholds any."""
    pool_plans = begin_pool_plans(fleet, world, take_inventory(fleet, world))
    supplies = find_supplies(fleet, world, pool_plans)
    demand = sign_demand(fleet, world, supplies)
    layout = lay_out(fleet, world, pool_plans, supplies, demand)
    free = find_free(fleet, world, pool_plans, layout, ())
    leases = [*choose_leases(fleet, world, layout, demand, free)]
    found = {int(each.ticket.partition("/")[2]): each.machine for each in leases}
    # No ticket gets two machines, and no machine goes twice.
    assert len(leases) == len(found) == len(set(found.values()))
    return found


@st.composite
def passes(draw: st.DrawFn) -> tuple[Fleet, list[Ticket], list[Tenancy]]:
    """Return tickets that wait, free machines, and the limits of their queue."""
    tickets = [
        a_ticket(
            number,
            owner=draw(OWNERS),
            sandbox=draw(SANDBOXES),
            tags=("arch_x86_64", draw(TAGS)),
            priority=draw(st.integers(-1, 1)),
            background=draw(st.booleans()),
            opened_at=ago(minutes=draw(st.integers(0, 90))),
        )
        for number in range(1, draw(st.integers(0, 8)) + 1)
    ]
    machines = []
    for number in range(draw(st.integers(0, 6))):
        sandbox = draw(SANDBOXES)
        machines.append(
            a_tenancy(machine=f"m{number}", pool=draw(POOLS), sandbox=sandbox, uses=bool(sandbox))
        )
    return a_fleet(**draw(LIMITS)), tickets, machines


@given(passes(), st.randoms())
def test_assignment_pass_keeps_its_invariants(
    drawn: tuple[Fleet, list[Ticket], list[Tenancy]], random: st.DataObject
) -> None:
    fleet, tickets, machines = drawn
    shuffled = sorted(tickets, key=lambda _: random.random())  # type: ignore[attr-defined]  # Hypothesis' own Random

    def world_of(tickets: list[Ticket], machines: list[Tenancy]) -> World:
        pool_of = {each.machine: each.pool for each in machines}
        return a_ticket_world(fleet, tickets, pool_of, [each for each in machines if each.uses])

    leases = leases_of(fleet, world_of(tickets, machines))

    by_id = {ticket.id: ticket for ticket in tickets}
    by_name = {machine.machine: machine for machine in machines}
    fitting = {t.id: {n for n in PROVIDES if {*t.tags} <= PROVIDES[n]} for t in tickets}
    for number, name in leases.items():
        assert by_name[name].pool in fitting[number]
        assert by_name[name].sandbox in ("", by_id[number].sandbox)
    # Limits hold.
    waiting = by_id.keys() - leases.keys()
    for limit in limits_on(fleet, "tickets", ()):
        held = Counter(limit.whose(by_id[number]) for number in leases)
        assert all(count <= limit.most for count in held.values())
        waiting -= {n for n in waiting if held[limit.whose(by_id[n])] >= limit.most}
    # Nobody waits for want of a machine while one that fits is free.
    left = [machine for machine in machines if machine.machine not in leases.values()]
    for number in waiting:
        own = by_id[number].sandbox
        assert not [m for m in left if m.pool in fitting[number] and m.sandbox in ("", own)]
    # What a ticket called up goes to no other while it waits for want of a machine.
    for number in waiting:
        for other, name in leases.items():
            machine = by_name[name]
            if machine.pool in fitting[number] and machine.sandbox in ("", by_id[number].sandbox):
                called = "wanted" in by_id[number].tags and machine.pool == "c"
                assert not called or "wanted" in by_id[other].tags
    # The order of what is read changes nothing.
    again = leases_of(fleet, world_of(shuffled, machines[::-1]))
    assert [*again.items()] == [*leases.items()]


@given(st.integers(1, 400), st.integers(0, 50))
def test_ticket_is_served_despite_any_later_tickets(newer: int, ahead: int) -> None:
    """A ticket that waited for a step of ageing per place before it is the very first."""
    tags = ("arch_x86_64", "plain")
    old = a_ticket(1, tags=tags, opened_at=ago(minutes=10 * (ahead + 101)), priority=0)
    held = [
        a_ticket(1000 + number, tags=tags, machine=f"x{number}", state="ready")
        for number in range(ahead)
    ]
    others = [
        a_ticket(2 + number, tags=tags, owner=f"o{number}", priority=1, opened_at=NOW)
        for number in range(newer)
    ]
    busy = [a_tenancy(machine=each.machine, pool="a", uses=1) for each in held]
    pool_of = {"m": "a"} | {each.machine: "a" for each in busy}
    world = a_ticket_world(a_fleet(), [old, *held, *others], pool_of, busy)

    assert leases_of(a_fleet(), world) == {1: "m"}
