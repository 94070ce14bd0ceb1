"""What counts to the limits of a queue of tickets: its own machines and its own tickets."""

from collections.abc import Sequence

from fleet.model.facts import World
from fleet.model.plan import Create, Plan
from fleet.model.tickets import Ticket
from fleet.reconcile import reconcile
from fleet.tickets.desk import read_desk
from tests.builders import NOW, a_listing, a_machine, a_stack, some_inputs
from tests.builders.ticketing import a_ticket, a_ticket_fleet, used

MACHINE = "debian-ci-powerful-0001"
QUEUES = ("one", "two")
FLEET = a_ticket_fleet(
    queues={name: {"kind": "tickets", "limits": {"total": 1}} for name in QUEUES}
)
HELD = a_ticket(1, machine=MACHINE, state="ready", sandbox="s", heard_at=NOW)
WAITS = a_ticket(2, sandbox="s2", tags=("arch_x86_64", "extra_powerful"))


def planned(one: Sequence[Ticket], two: Sequence[Ticket]) -> Plan:
    """Return the plan where the only machine is used by who has it of queue `two`."""
    tenancy = used(machine=MACHINE, sandbox="s")
    machine = a_machine(name=MACHINE, pool="powerful", type="ccx63", id="1")
    stack = a_stack(
        provider="desk", workers=(some_inputs(name=MACHINE, type="ccx63"),), ids={MACHINE: "1"}
    )
    world = World(
        fleet="debian-ci",
        time=NOW,
        queues={
            "one": read_desk(FLEET, one, (), NOW),
            "two": read_desk(FLEET, two, (tenancy,), NOW),
        },
        providers={"desk": a_listing(machine)},
        stacks={"powerful": stack},
    )
    return reconcile(FLEET, world)


def made(plan: Plan) -> int:
    return sum(isinstance(action, Create) for action in plan.actions)


def test_machine_of_one_queue_does_not_count_to_limit_of_another() -> None:
    plan = planned([WAITS], [HELD])

    assert made(plan) == 1
    assert [(each.path, each.in_use, each.given) for each in plan.limits] == [
        (("queues", "one", "limits", "total"), 0, 1),
        (("queues", "two", "limits", "total"), 1, 0),
    ]
