"""A queue of tickets as it is told to whoever plans, and the machines that it gives out."""

from datetime import datetime
from pathlib import Path

import pytest
import yaml

from fleet.model.facts import (
    Demand,
    Ledger,
    Listing,
    MachineState,
    QueueReading,
    Unknown,
    Worker,
    WorkerState,
    World,
)
from fleet.model.plan import Drain, Reason
from fleet.model.tickets import Ticket
from fleet.planner.begin import begin_pool_plans
from fleet.planner.inventory import take_inventory
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk
from fleet.tickets.tenancy import Tenancy
from tests.builders import NOW, a_listing, a_stack, ago, some_inputs
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.ticketing import (
    a_tenancy,
    a_ticket,
    a_ticket_fleet,
    leases_of,
    listing_of,
    used,
)

NAME = "debian-ci-powerful-0001"
FLEET = a_ticket_fleet()


def a_reading(*tickets: Ticket, tenancies: tuple[Tenancy, ...] = ()) -> QueueReading:
    return read_desk(FLEET, tickets, tenancies, NOW)


def workers_of(reading: QueueReading) -> tuple[Worker, ...]:
    assert isinstance(reading.workers, tuple)
    return reading.workers


def world_of(reading: QueueReading, listing: Listing) -> World:
    return World(
        fleet="debian-ci",
        time=NOW,
        queues={"tickets": reading},
        providers={"desk": listing},
        stacks={
            "powerful": a_stack(
                provider="desk", workers=(some_inputs(name=NAME, type="ccx63"),), ids={NAME: "1"}
            )
        },
    )


def test_ticket_of_silent_client_is_not_demand() -> None:
    demand = a_reading(a_ticket(lease=60)).demand

    assert isinstance(demand, Demand)
    assert demand.requests == ()


def test_machine_of_expired_ticket_is_idle_since_now() -> None:
    had = a_ticket(machine="m1", state="ready", lease=60, sandbox="s")

    (worker,) = workers_of(a_reading(had, tenancies=(used(sandbox="s", since=ago(hours=2)),)))

    assert (worker.state, worker.since, worker.draining) == (WorkerState.IDLE, NOW, False)


CASES = [*read_blocks(Path(__file__).parent / "desk")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_machine_is_given_out_as_in_its_case(case: Block) -> None:
    assert outcome_of(*case.parts) == case.result


def outcome_of(tickets: str, machine: str) -> str:
    """Return the state of the only machine, its work and uses, and the tickets that get it."""
    waiting = [ticket_of(*each.split()) for each in tickets.split(",") if each]
    words = machine.split()
    said = dict(word.partition("=")[::2] for word in words if "=" in word)
    states = {"starting", "failed"} & {*words}
    listed: dict[str, object] = {"state": states.pop()} if states else {}
    if "made" in said:
        listed["created_at"] = before(said["made"])
    tenancies = []
    if "used" in words:
        times = {
            "since": before(said.get("since", "1m")),
            "first_used": before(said.get("first", "9m")),
        }
        tenancies.append(used(machine=NAME, **times))
    if "draining" in words:
        tenancies.append(a_tenancy(machine=NAME, draining=True))
    world = world_of(a_reading(*waiting, tenancies=tuple(tenancies)), listing_of(**listed))
    (unit,) = take_inventory(FLEET, world)["powerful"].units
    parts = [f"{unit.state} of {unit.registry}"]
    if unit.worker:
        parts += [f"runs {unit.worker.running}"] if unit.worker.running else []
        parts += [f"uses {unit.worker.uses}"] if unit.worker.uses is not None else []
    leases = leases_of(FLEET, world)
    assert {machine for _, machine in leases} <= {NAME}
    return ", ".join((*parts, *(f"given to {ticket}" for ticket, _ in leases)))


def before(text: str) -> datetime:
    unit = {"m": "minutes", "h": "hours"}[text[-1]]
    return ago(**{unit: int(text[:-1])})


def ticket_of(number: str, *words: str) -> Ticket:
    said: dict[str, object] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key == "ready":
            said |= {"machine": NAME, "state": "ready"}
        elif key in ("for", "heard"):
            said["opened_at" if key == "for" else "heard_at"] = before(value)
        else:
            said[key] = yaml.safe_load(value)
    return a_ticket(int(number), **said)


def test_booting_machine_can_be_excluded_from_tickets() -> None:
    inventory = take_inventory(FLEET, world_of(a_reading(), listing_of()))

    assert inventory["powerful"].tokens == "tickets"


def test_unreadable_ticket_queue_stops_changes_of_its_pools() -> None:
    unknown = Unknown(unknown="the store does not answer")
    reading = QueueReading(demand=unknown, workers=unknown)

    inventory = take_inventory(FLEET, world_of(reading, listing_of()))["powerful"]

    assert tells(inventory.frozen[0], "queue tickets", "unknown", "store", "answer")


def test_priorities_of_pools_are_summed_over_required_tags() -> None:
    preferring = FLEET.pools["powerful"].model_copy(
        update={"priorities": {"extra_powerful": 3, "arch_x86_64": 4, "unasked": -99}}
    )
    plain = FLEET.pools["powerful"].model_copy(update={"priorities": {"arch_x86_64": 6}})
    fleet = FLEET.model_copy(update={"pools": {"a-plain": plain, "powerful": preferring}})
    ticket = a_ticket(7, tags=("arch_x86_64", "extra_powerful"))
    world = with_another(world_of(a_reading(ticket), listing_of()), "a-plain")

    assert leases_of(fleet, world) == [(7, NAME)]


def test_limit_names_ticket_without_sandbox_by_its_number() -> None:
    fleet = a_ticket_fleet(
        queues={"tickets": {"kind": "tickets", "limits": {"per": {"sandbox": 1}}}}
    )
    world = world_of(a_reading(a_ticket(7)), listing_of())

    (limit,) = reconcile(fleet, world).limits

    assert limit.who == "ticket 7"


def with_another(world: World, pool: str) -> World:
    """Return a world with a machine of another pool."""
    name = f"debian-ci-{pool}-0001"
    (machine,) = listing_of().machines
    other = machine.altered(name=name, pool=pool, id="2")
    inputs = some_inputs(name=name, type="ccx63")
    stacks = dict(world.stacks) if isinstance(world.stacks, dict) else {}
    stacks[pool] = a_stack(provider="desk", workers=(inputs,), ids={name: "2"})
    listings = {"desk": a_listing(machine, other)}
    return world.altered(stacks=stacks, providers=listings)


def test_unused_machine_with_failed_livechecks_is_deleted() -> None:
    listing = listing_of(state=MachineState.FAILED)

    world = world_of(a_reading(), listing)
    (pool_plan,) = begin_pool_plans(FLEET, world, take_inventory(FLEET, world)).values()

    assert [(type(each), each.reason) for each in pool_plan.actions] == [
        (Drain, Reason.LIVECHECK_FAILED)
    ]


TWO_QUEUES = {"tickets": {"kind": "tickets"}, "others": {"kind": "tickets"}}


def one_of_each(fleet: Fleet, world: World) -> list[tuple[int, str]]:
    """Return the machines of two tickets, each of another queue."""
    queues = {"tickets": a_reading(a_ticket(7)), "others": a_reading(a_ticket(8))}
    return leases_of(fleet, world.altered(queues=queues))


def test_machine_is_assigned_by_one_queue_only() -> None:
    fleet = a_ticket_fleet(queues=TWO_QUEUES)

    given = one_of_each(fleet, world_of(a_reading(), listing_of()))

    assert given == [(8, NAME)]


def test_tickets_of_all_queues_share_a_budget() -> None:
    world = with_another(world_of(a_reading(), listing_of()), "usual")
    world = world.altered(ledger=Ledger(charged_until=NOW))
    pools = FLEET.pools | {"usual": FLEET.pools["powerful"]}
    hours = {"machine_hours_per_day": 40}
    fleet = a_ticket_fleet(queues=TWO_QUEUES, budgets={"all": hours}).model_copy(
        update={"pools": pools}
    )
    unlimited = fleet.model_copy(update={"budgets": {}})

    assert one_of_each(unlimited, world) == [(8, NAME), (7, "debian-ci-usual-0001")]
    assert one_of_each(fleet, world) == [(8, NAME)]
