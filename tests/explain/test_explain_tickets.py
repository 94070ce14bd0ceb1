"""Why a machine with a ticket stays, and who holds the limits of a queue of tickets."""

from collections.abc import Sequence

from fleet.explain.case import Case
from fleet.explain.objects import explain_pool, explain_worker
from fleet.guard import guard
from fleet.model.facts import Ledger, Machine, Unknown, World
from fleet.model.tickets import Ticket
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.tickets.desk import read_desk
from fleet.tickets.reasons import find_held
from fleet.tickets.tenancy import Tenancy
from tests.builders import NOW, a_listing, a_machine, a_stack, a_worker, some_inputs
from tests.builders.explaining import explain_request
from tests.builders.sentences import tells
from tests.builders.ticketing import a_ticket, a_ticket_fleet, used

NAME = "debian-ci-powerful-0001"
LIMITED = a_ticket_fleet(queues={"tickets": {"kind": "tickets", "limits": {"total": 1}}})


def seen(
    fleet: Fleet,
    tickets: Sequence[Ticket],
    tenancies: Sequence[Tenancy] = (),
    machines: Sequence[Machine] = (),
) -> World:
    inputs = tuple(some_inputs(name=each.name, type="ccx63") for each in machines)
    ids = {each.name: each.id for each in machines}
    return World(
        fleet="debian-ci",
        time=NOW,
        queues={"tickets": read_desk(fleet, tickets, tenancies, NOW)},
        providers={"desk": a_listing(*machines)},
        stacks={"powerful": a_stack(provider="desk", workers=inputs, ids=ids)},
    )


def test_end_of_ticket_with_machine_is_unknown() -> None:
    fleet = a_ticket_fleet()
    had = a_ticket(7, machine=NAME, state="ready", sandbox="s", heard_at=NOW)
    machine = a_machine(name=NAME, pool="powerful", type="ccx63", id="1")
    world = seen(fleet, [had], [used(machine=NAME, sandbox="s")], [machine])

    found = explain_worker(Case(fleet, world, guard(fleet, reconcile(fleet, world))), NAME)

    assert found is not None
    assert "ticket" in found.reasons[-1].because
    assert found.reasons[-1].path == ("durations",)


def test_expected_end_uses_duration_of_ticket_build() -> None:
    fleet = a_ticket_fleet(durations={"any": [{"match": "ada/.*/chromium", "takes": "20h"}]})
    build = {"project": "ping", "chroot": "f43", "package": "chromium", "sandbox": "s"}
    had = a_ticket(7, machine=NAME, state="ready", heard_at=NOW, **build)
    machine = a_machine(name=NAME, pool="powerful", type="ccx63", id="1")
    world = seen(fleet, [had], [used(machine=NAME, sandbox="s", since=NOW)], [machine])
    registers = a_worker(name=NAME, pool="powerful", busy=True)
    listing = a_listing(machine).altered(workers=(registers,))
    world = world.altered(providers={"desk": listing})

    found = explain_worker(Case(fleet, world, guard(fleet, reconcile(fleet, world))), NAME)

    assert found is not None
    last = found.reasons[-1].because
    assert last.endswith(" 2026-11-22 04:00 UTC")


def test_limit_of_ticket_queue_is_enforced_by_scheduler() -> None:
    tags = ("arch_x86_64", "extra_powerful")
    world = seen(LIMITED, [a_ticket(number, tags=tags) for number in (1, 2)])
    plan = guard(LIMITED, reconcile(LIMITED, world))

    pool = explain_pool(Case(LIMITED, world, plan), "powerful")
    (waits,) = (key for unserved in plan.unserved for key in unserved.requests)
    request = explain_request(LIMITED, world, plan, waits)

    assert pool is not None
    assert request is not None
    limit = ("queues", "tickets", "limits", "total")
    held = [each.by for each in (*pool.reasons, *request.reasons) if each.path == limit]
    assert held == ["scheduler", "scheduler"]


def test_explanation_names_rule_that_gives_ticket_a_tag() -> None:
    rule = {"match": "praiskup/ping/fedora-.*/chromium", "ask": ["extra_powerful"]}
    fleet = a_ticket_fleet(tag={"asked_by": ["rules"]}, powerful=[rule])
    build = {"project": "ping", "chroot": "fedora-43-x86_64", "package": "chromium"}
    world = seen(fleet, [a_ticket(1, owner="praiskup", **build)])

    found = explain_request(fleet, world, guard(fleet, reconcile(fleet, world)), "1")

    assert found is not None
    assert found.reasons[0].path == ("powerful", 0)
    assert tells(found.headline, "tickets/1", NAME)
    assert tells(found.reasons[0].because, "extra_powerful", "powerful[0", "pattern")


def test_ticket_without_permission_names_rule_that_denies_it() -> None:
    fleet = a_ticket_fleet(tag={"asked_by": ["rules"]})
    world = seen(fleet, [a_ticket(1, tags=("arch_x86_64", "extra_powerful"))])
    plan = guard(fleet, reconcile(fleet, world))

    assert plan.actions == ()
    held = find_held(fleet, plan, "tickets")
    assert [*held] == [1]
    words = ("user ada", "tags.extra_powerful.asked_by", "rules")
    assert all(word in held[1] for word in words)


def test_budget_of_unknown_rest_states_no_time() -> None:
    budgets = {"blue": {"team": "blue", "per_day": "1 EUR"}}
    fleet = a_ticket_fleet(budgets=budgets, durations={"any": "1h"})
    tags = ("arch_x86_64", "extra_powerful")
    world = seen(fleet, [a_ticket(number, team="blue", tags=tags) for number in (1, 2)])

    def told(ledger: Ledger | Unknown) -> str:
        plan = guard(fleet, reconcile(fleet, world.altered(ledger=ledger)))
        return find_held(fleet, plan, "tickets")[2]

    assert tells(told(Ledger(charged_until=NOW)), "budgets.blue.per_day", "no earlier than")
    unknown = told(Unknown(unknown="the store is locked"))
    assert tells(unknown, "budget blue", "the store is locked")
    assert "no earlier than" not in unknown
