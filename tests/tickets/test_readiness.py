"""When a machine of a cloud is ready for a ticket, and when it failed to become so."""

import pytest

from fleet.model.facts import Machine, MachineState, World
from fleet.model.plan import Create, Delete, Drain, Reason
from fleet.model.tickets import Ticket
from fleet.planner.failures import settle
from fleet.planner.inventory import take_inventory
from fleet.planner.units import UnitState
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.tickets.assignment import Tenancy
from fleet.tickets.desk import read_desk
from fleet.tickets.handout import TicketAssigner
from tests.builders import NOW, a_listing, a_machine, a_stack, ago, an_attempt, some_inputs
from tests.builders.sentences import tells
from tests.builders.ticketing import a_tenancy, a_ticket, a_ticket_fleet

NAME = "debian-ci-powerful-0001"
READY = {"port": 22, "within": "5m"}
CLOUDS = {
    "hcloud": {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}},
    "aws": {"kind": "aws", "region": "eu-central-1", "ssh_from": ["192.0.2.0/24"]},
}
clouds = pytest.mark.parametrize("kind", CLOUDS)


def a_cloud_fleet(kind: str = "hcloud", ready: object = READY, **pool: object) -> Fleet:
    """Return a fleet whose tickets get machines of a cloud."""
    return a_ticket_fleet(
        providers={"desk": CLOUDS[kind]},
        money={"exchange": {"USD": {"rate": 0.9, "as_of": "2026-11-01"}}},
        pool={"machine": "ccx63" if kind == "hcloud" else "c7a.4xlarge", "ready": ready, **pool},
    )


def a_server(**overrides: object) -> Machine:
    """Return a server of the pool that runs, and whose port was not looked at."""
    seen = {
        "name": NAME,
        "pool": "powerful",
        "type": "ccx63",
        "id": "1",
        "address": "192.0.2.1",
        "created_at": ago(minutes=2),
    }
    return a_machine(**(seen | overrides))


WAITING = (a_ticket(1), a_ticket(2))


def a_world(
    fleet: Fleet,
    *machines: Machine,
    tickets: tuple[Ticket, ...] = WAITING,
    tenancies: tuple[Tenancy, ...] = (),
    **overrides: object,
) -> World:
    """Return a world in which tickets 1 and 2 wait, and these machines are recorded."""
    stack = a_stack(
        provider="desk",
        engine="pulumi",
        workers=tuple(some_inputs(name=each.name, type=each.type) for each in machines),
        ids={each.name: each.id for each in machines},
    )
    seen: dict[str, object] = {
        "fleet": "debian-ci",
        "time": NOW,
        "queues": {"tickets": read_desk(fleet, tickets, tenancies, NOW)},
        "providers": {"desk": a_listing(*machines)},
        "stacks": {"powerful": stack} if machines else {},
    }
    return World.model_validate(seen | overrides)


def state_of(fleet: Fleet, machine: Machine, *tenancies: Tenancy) -> UnitState:
    """Return what the one machine of the pool is."""
    (unit,) = take_inventory(fleet, a_world(fleet, machine, tenancies=tenancies))["powerful"].units
    return unit.state


@clouds
@pytest.mark.parametrize(
    ("ready", "seen", "state"),
    [
        (None, {}, UnitState.IDLE),
        (None, {"address": None}, UnitState.STARTING),
        (None, {"state": MachineState.STARTING}, UnitState.STARTING),
        (READY, {}, UnitState.STARTING),
        (READY, {"misses": 1}, UnitState.STARTING),
        (READY, {"misses": 0, "was_ready": True}, UnitState.IDLE),
        (READY, {"misses": 2, "was_ready": True}, UnitState.IDLE),
        (
            READY,
            {"misses": 0, "was_ready": True, "state": MachineState.STOPPED},
            UnitState.STOPPED,
        ),
    ],
)
def test_machine_is_ready_when_running_addressed_and_reachable(
    kind: str, ready: object, seen: dict[str, object], state: UnitState
) -> None:
    assert state_of(a_cloud_fleet(kind, ready), a_server(**seen)) is state


@pytest.mark.parametrize(
    ("seen", "state"),
    [
        ({"misses": 4}, UnitState.NEVER_REGISTERED),
        ({"state": MachineState.STARTING}, UnitState.NEVER_REGISTERED),
        ({"address": None}, UnitState.NEVER_REGISTERED),
        ({"misses": None}, UnitState.STARTING),
    ],
    ids=["it does not answer", "it does not start", "it has no address", "nobody looked"],
)
def test_unready_machine_is_a_failed_boot_unless_unchecked(
    seen: dict[str, object], state: UnitState
) -> None:
    late = a_server(created_at=ago(minutes=6), **seen)

    assert state_of(a_cloud_fleet(), late) is state


@pytest.mark.parametrize(
    ("looked", "state"),
    [(4, UnitState.STARTING), (6, UnitState.NEVER_REGISTERED), (119, UnitState.NEVER_REGISTERED)],
    ids=["its time has not passed since", "it has", "since its boot"],
)
def test_ready_time_restarts_when_checks_were_lost(looked: int, state: UnitState) -> None:
    old = a_server(created_at=ago(hours=2), misses=1, looked_since=ago(minutes=looked))

    assert state_of(a_cloud_fleet(), old) is state


def test_unready_machine_is_deleted_as_failed_boot_of_image() -> None:
    fleet, late = a_cloud_fleet(), a_server(created_at=ago(minutes=6), misses=3)
    tried = an_attempt(pool="powerful", worker=NAME, at=ago(minutes=6), result="starting")
    world = a_world(fleet, late, attempts=(tried,))

    actions = reconcile(fleet, world).actions
    (delete,) = [each for each in actions if not isinstance(each, Create)]

    assert isinstance(delete, Delete)
    assert delete.reason is Reason.BOOT_FAILED
    assert tells(delete.because, "port 22", "ready.within", "5m")
    (ended,) = settle(fleet, world, take_inventory(fleet, world))
    assert (ended.result, ended.detail) == ("failed", delete.because)


def test_reachable_machine_gets_first_ticket() -> None:
    fleet = a_cloud_fleet()
    tickets = (a_ticket(1), a_ticket(2))
    world = a_world(fleet, a_server(misses=0, was_ready=True))

    assert [
        each.ticket for each in TicketAssigner(fleet, world).assign("tickets", tickets).leases
    ] == [1]


@pytest.mark.parametrize("misses", [1, 2, 3])
def test_unreachable_machine_is_not_assigned(misses: int) -> None:
    fleet = a_cloud_fleet()
    world = a_world(fleet, a_server(misses=misses, was_ready=True))

    assert not TicketAssigner(fleet, world).assign("tickets", (a_ticket(1),)).leases


@pytest.mark.parametrize(
    "seen",
    [
        {"state": MachineState.STOPPING, "misses": 0},
        {"state": MachineState.STARTING, "address": None, "misses": 0},
        {"misses": None},
    ],
    ids=["it ends", "it reboots", "nobody looked"],
)
def test_reserved_machine_is_assigned_only_while_reachable(seen: dict[str, object]) -> None:
    fleet = a_cloud_fleet(reuse={"opportunity": "30m"})
    kept = a_tenancy(machine=NAME, uses=1, sandbox="ada/ping", since=ago(minutes=1))
    next_one = a_ticket(2, sandbox="ada/ping")

    def leased(machine: Machine) -> int:
        world = a_world(fleet, machine, tickets=(next_one,), tenancies=(kept,))
        return len(TicketAssigner(fleet, world).assign("tickets", (next_one,)).leases)

    assert leased(a_server(was_ready=True, misses=0)) == 1
    assert leased(a_server(was_ready=True, **seen)) == 0


def test_machine_is_drained_after_three_failed_checks() -> None:
    fleet = a_cloud_fleet()
    world = a_world(fleet, a_server(misses=3, was_ready=True), tickets=())

    (drain,) = reconcile(fleet, world).actions

    assert isinstance(drain, Drain)
    assert drain.reason is Reason.LIVECHECK_FAILED
    assert tells(drain.because, "ready", "answer", "3")


def test_machine_with_ticket_is_kept_when_unreachable() -> None:
    fleet = a_cloud_fleet()
    had = a_ticket(1, machine=NAME, state="ready")
    held = a_tenancy(machine=NAME, uses=1, sandbox="ticket 1", since=ago(minutes=1))
    world = a_world(fleet, a_server(misses=9, was_ready=True), tickets=(had,), tenancies=(held,))

    assert not [each for each in reconcile(fleet, world).actions if each.action == "delete"]


def test_tenancy_of_older_machine_does_not_affect_starting_one() -> None:
    fleet, now = a_cloud_fleet(), ago(minutes=1)
    before = a_tenancy(machine=NAME, uses=1, disabled=True, since=ago(hours=2))

    state = state_of(fleet, a_server(created_at=now, misses=1), before)

    assert state is UnitState.STARTING


def test_formerly_ready_machine_is_a_failed_livecheck() -> None:
    fleet = a_cloud_fleet()
    tried = an_attempt(pool="powerful", worker=NAME, at=ago(hours=2), result="registered")
    world = a_world(
        fleet, a_server(created_at=ago(hours=2), misses=1), tickets=(), attempts=(tried,)
    )

    (delete,) = reconcile(fleet, world).actions

    assert delete.reason is Reason.LIVECHECK_FAILED
    assert tells(delete.because, "port 22")
