"""Machines for tickets that nobody knows go once two listings, some time apart, have said so."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from fleet.apply.rebuild import find_orphans
from fleet.guard import guard
from fleet.model.facts import Machine, Stack, Unknown, World
from fleet.model.plan import Plan, Reason
from fleet.model.tickets import Ticket, TicketState
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk
from fleet.tickets.tenancy import Tenancy
from tests.builders import NOW, a_listing, a_machine, a_stack, ago, some_inputs
from tests.builders.cases import Block, read_blocks
from tests.builders.deciding import actions_of, reason_of, sentence_of
from tests.builders.decisions import decided
from tests.builders.sentences import tells
from tests.builders.ticketing import a_tenancy, a_ticket, a_ticket_fleet

ORPHAN, OTHER = "debian-ci-powerful-0001", "debian-ci-powerful-0002"
EMPTY: Mapping[str, Stack | Unknown] = {"powerful": a_stack(provider="desk", workers=(), ids={})}


def machine(name: str = ORPHAN, **said: object) -> Machine:
    given = {"name": name, "id": f"id-{name}", "pool": "powerful", "type": "ccx63"}
    return a_machine(**(given | said))


def seen(
    fleet: Fleet,
    *machines: Machine,
    tickets: Sequence[Ticket] = (),
    tenancies: Sequence[Tenancy] = (),
    stacks: Mapping[str, Stack | Unknown] = EMPTY,
) -> World:
    """Return a world in which a provider lists these machines, and their pool's stack none."""
    return World(
        fleet="debian-ci",
        time=NOW,
        queues={"tickets": read_desk(fleet, tickets, tenancies, NOW)},
        providers={"desk": a_listing(*machines)},
        stacks=dict(stacks),
    )


def planned(*machines: Machine, fleet: Fleet | None = None, **said: Any) -> Plan:  # noqa: ANN401 - as `seen` takes it
    fleet = fleet or a_ticket_fleet()
    return guard(fleet, reconcile(fleet, seen(fleet, *machines, **said)))


def drained(minutes: float, name: str = ORPHAN, **said: object) -> Tenancy:
    return a_tenancy(machine=name, since=ago(minutes=minutes), draining=True, **said)


CASES = [*read_blocks(Path(__file__).parent / "orphans")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_orphans_go_as_in_their_case(case: Block) -> None:
    plan = plan_of(*case.parts)

    assert decided(plan) == case.result
    assert plan.guards == ()
    assert {getattr(action, "registry", None) for action in plan.actions} <= {"tickets"}
    for number, words in case.because:
        assert tells(sentence_of(plan, f"debian-ci-powerful-{number:>04}"), *words.split())


def plan_of(pool: str, machines: str) -> Plan:
    """Return the plan of a pool of tickets whose stack knows none of these machines."""
    listed, tenancies, tickets = [], [], []
    for number, *words in (each.split() for each in machines.split(",")):

        def minutes(word: str, words: list[str] = words) -> float:
            return float(words[words.index(word) + 1].rstrip("m"))

        name = f"debian-ci-powerful-{number:>04}"
        states = {"starting", "stopped"} & {*words}
        said: dict[str, object] = {"state": states.pop()} if states else {}
        if "made" in words:
            said["created_at"] = ago(minutes=minutes("made"))
        listed.append(machine(name, **said))
        if "drained" in words:
            uses = {"uses": 1} if "held" in words else {}
            state = {"disabled": "disabled" in words} | uses
            tenancies.append(drained(minutes("drained"), name, **state))
        if "back" in words:
            since = ago(minutes=minutes("back"))
            tenancies.append(a_tenancy(machine=name, since=since, uses=1, sandbox="ada"))
        if "held" in words:
            tickets.append(a_ticket(state=TicketState.READY, machine=name))
    fleet = a_ticket_fleet(pool=yaml.safe_load(f"{{{pool}}}"))
    return planned(*listed, fleet=fleet, tickets=tickets, tenancies=tenancies)


KNOWN = {
    "powerful": a_stack(
        provider="desk", workers=(some_inputs(name=ORPHAN),), ids={ORPHAN: f"id-{ORPHAN}"}
    )
}


@pytest.mark.parametrize(("minutes", "goes"), [(9, False), (11, True)])
def test_orphan_of_ended_ticket_is_deleted_as_late_as_known_one(
    minutes: float, *, goes: bool
) -> None:
    """It was listed when it was given out too, and is for no other ticket: it is to go anyway."""
    fleet = a_ticket_fleet(pool={"reuse": None})
    given_back = a_tenancy(machine=ORPHAN, since=ago(minutes=minutes), uses=1, sandbox="ada")

    orphan = planned(machine(), fleet=fleet, tenancies=[given_back])
    known = planned(machine(), fleet=fleet, tenancies=[given_back], stacks=KNOWN)

    assert actions_of(orphan) == [("delete", ORPHAN)] * goes
    assert actions_of(known) == [("delete", ORPHAN)]


@pytest.mark.parametrize(
    "stacks",
    [
        {},
        {"powerful": Unknown(unknown="no answer")},
        {
            "powerful": a_stack(
                provider="desk", workers=(some_inputs(name=ORPHAN),), ids={ORPHAN: "another"}
            )
        },
    ],
    ids=["no stack ever was", "unknown", "one of its name is recorded"],
)
def test_orphan_is_kept_when_stack_is_unknown(stacks: Mapping[str, Stack | Unknown]) -> None:
    plan = planned(machine(), tenancies=[drained(60)], stacks=stacks)

    assert (ORPHAN, Reason.ORPHAN) not in [(a.worker, a.reason) for a in plan.actions]


@pytest.mark.parametrize("name", ["build-host", "debian-ci-other-0001", "debian-ci-powerful-one"])
def test_orphan_with_foreign_name_needs_attention(name: str) -> None:
    plan = planned(machine(name), tenancies=[drained(60, name)])

    assert actions_of(plan) == []
    assert [said.split(":")[0] for said in plan.attention] == [name]


def test_orphan_of_removed_pool_is_kept() -> None:
    gone = machine("debian-ci-gone-0001", pool="gone")
    stacks = {**EMPTY, "gone": a_stack(provider="desk", workers=(), ids={})}

    assert actions_of(planned(gone, stacks=stacks)) == []


def test_orphan_is_automatic_unless_withheld_by_guard() -> None:
    fleet, machines = a_ticket_fleet(), [machine(f"debian-ci-powerful-{n:04}") for n in range(11)]
    world = seen(fleet, *machines, tenancies=[drained(5, machines[0].name)])

    found = find_orphans(fleet, world, guard(fleet, reconcile(fleet, world)))

    assert [each.name for each in found.orphans if each.goes] == [machines[0].name]
    assert len(found.orphans) == 11


def test_machine_for_debusine_is_not_an_orphan() -> None:
    plan = planned(machine(), fleet=_at_debusine())

    assert actions_of(plan) == []
    assert reason_of(plan, ORPHAN) is Reason.NOT_KNOWN


def _at_debusine() -> Fleet:
    queue = {"kind": "debusine", "url": "https://debusine.example.org", "scopes": ["debian"]}
    return a_ticket_fleet(
        queues={"debian": queue, "tickets": {"kind": "tickets"}}, pool={"serves": ["debian"]}
    )
