"""When a machine of a cloud is ready for a ticket, and when it failed to become so."""

from pathlib import Path

import pytest
import yaml

from fleet.model.facts import Machine, World
from fleet.model.plan import Drain, Reason
from fleet.model.tickets import Ticket
from fleet.planner.inventory import take_inventory
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk
from fleet.tickets.tenancy import Tenancy
from tests.builders import NOW, a_listing, a_machine, a_stack, ago, an_attempt, some_inputs
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells
from tests.builders.ticketing import a_tenancy, a_ticket, a_ticket_fleet, leases_of

NAME = "debian-ci-powerful-0001"
READY = {"port": 22, "within": "5m"}
CLOUDS = {
    "hcloud": {"kind": "hcloud", "location": "fsn1", "token": {"env": "HCLOUD_TOKEN"}},
    "aws": {"kind": "aws", "region": "eu-central-1", "ssh_from": ["192.0.2.0/24"]},
}


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


def test_machine_is_drained_after_three_failed_checks() -> None:
    fleet = a_cloud_fleet()
    world = a_world(fleet, a_server(misses=3, was_ready=True), tickets=())

    (drain,) = reconcile(fleet, world).actions

    assert isinstance(drain, Drain)
    assert drain.reason is Reason.LIVECHECK_FAILED
    assert tells(drain.because, "ready", "answer", "3")


def test_formerly_ready_machine_is_a_failed_livecheck() -> None:
    fleet = a_cloud_fleet()
    tried = an_attempt(pool="powerful", worker=NAME, at=ago(hours=2), result="registered")
    world = a_world(
        fleet, a_server(created_at=ago(hours=2), misses=1), tickets=(), attempts=(tried,)
    )

    (delete,) = reconcile(fleet, world).actions

    assert delete.reason is Reason.LIVECHECK_FAILED
    assert tells(delete.because, "port 22")


CASES = [*read_blocks(Path(__file__).parent / "ready")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_machine_is_ready_as_in_its_case(case: Block) -> None:
    ready, machine = case.parts
    for kind in CLOUDS:
        fleet = a_cloud_fleet(kind, READY if ready else None, reuse={"opportunity": "30m"})
        assert outcome_of(fleet, machine.split()) == case.result


def outcome_of(fleet: Fleet, words: list[str]) -> str:
    """Return the state of the machine, and the ticket that gets it."""
    pairs = (word.partition("=")[::2] for word in words if "=" in word)
    seen = {key: yaml.safe_load(value) for key, value in pairs}
    for key, said in (("made", "created_at"), ("looked", "looked_since")):
        if key in seen:
            seen[said] = ago(minutes=seen.pop(key))
    if states := {"starting", "stopped", "stopping"} & {*words}:
        seen["state"] = states.pop()
    tenancies = []
    if "kept" in words:
        kept = {"uses": 1, "sandbox": "s", "since": ago(minutes=1)}
        tenancies.append(a_tenancy(machine=NAME, **kept))
    if "older" in words:
        tenancies.append(a_tenancy(machine=NAME, uses=1, disabled=True, since=ago(hours=2)))
    tickets = (a_ticket(1), a_ticket(2, sandbox="s"))
    world = a_world(fleet, a_server(**seen), tickets=tickets, tenancies=tuple(tenancies))
    (unit,) = take_inventory(fleet, world)["powerful"].units
    leases = leases_of(fleet, world)
    return ", ".join((unit.state, *(f"given to {ticket}" for ticket, _ in leases)))
