"""Who gets which machine: by fit, priority, turn and age, within limits and sandboxes."""

from collections.abc import Callable, Iterable
from decimal import Decimal

import pytest

from fleet.model.tickets import Limit, Ticket
from fleet.tickets.assignment import (
    Lease,
    ReadyMachine,
    Suitable,
    Terms,
    TicketAssignment,
    TicketBudget,
    assign,
)
from tests.builders import NOW, ago
from tests.builders.ticketing import a_ticket, suiting

TERMS = Terms()


def handed(
    tickets: Iterable[Ticket],
    machines: int | Iterable[ReadyMachine],
    suits: Callable[[Ticket], Suitable] | None = None,
    terms: Terms = TERMS,
) -> TicketAssignment:
    """Return who gets what; so many machines, or these."""
    if isinstance(machines, int):
        machines = [ReadyMachine(f"m{number}", "big") for number in range(1, machines + 1)]
    return assign(tickets, machines, suits or suiting(), terms, NOW)


def served(assignment: TicketAssignment) -> list[int]:
    return [lease.ticket for lease in assignment.leases]


def test_ticket_gets_fitting_free_machine() -> None:
    assert handed([a_ticket()], 1).leases == [Lease(1, "m1")]


def test_unfitting_machine_stays_free() -> None:
    assert handed([a_ticket()], 1, suiting({"small": 0})).leases == []


def test_machine_wanted_by_others_is_assigned_last_at_equal_rank() -> None:
    machines = [ReadyMachine("m1", "a-big"), ReadyMachine("m2", "usual")]
    last = frozenset({"a-big"})
    alike, preferred = (Suitable({"a-big": n, "usual": 0}, last=last) for n in (0, 1))

    assert handed([a_ticket()], machines, lambda _: alike).leases == [Lease(1, "m2")]
    assert handed([a_ticket()], machines, lambda _: preferred).leases == [Lease(1, "m1")]
    assert served(handed([a_ticket(1), a_ticket(2)], machines, lambda _: alike)) == [1, 2]


def test_one_machine_is_assigned_to_one_ticket() -> None:
    assert served(handed([a_ticket(1), a_ticket(2)], 1)) == [1]


def test_longest_waiting_ticket_is_served_first() -> None:
    tickets = [a_ticket(1), a_ticket(2, opened_at=ago(minutes=6))]

    assert served(handed(tickets, 1)) == [2]


def test_ticket_of_higher_priority_is_served_first() -> None:
    tickets = [a_ticket(1), a_ticket(2, priority=1, opened_at=NOW)]

    assert served(handed(tickets, 1)) == [2]


def test_background_ticket_is_served_last() -> None:
    tickets = [a_ticket(1, background=True), a_ticket(2, opened_at=NOW)]

    assert served(handed(tickets, 2)) == [2, 1]


def test_owners_are_served_in_turn() -> None:
    tickets = [*map(a_ticket, (1, 2, 3)), a_ticket(4, owner="ben", opened_at=NOW)]

    assert served(handed(tickets, 4)) == [1, 4, 2, 3]


def test_machines_of_an_owner_count_as_turns() -> None:
    having = a_ticket(1, machine="x")
    tickets = [having, a_ticket(2), a_ticket(3, owner="ben", opened_at=NOW)]

    assert served(handed(tickets, 1)) == [3]


def test_long_waiting_ticket_precedes_turn_and_priority() -> None:
    having = [a_ticket(number, machine=f"x{number}") for number in range(1, 4)]
    old = a_ticket(9, opened_at=ago(hours=30))
    tickets = [*having, old, a_ticket(10, owner="ben", priority=1)]

    assert served(handed(tickets, 1)) == [9]


def test_machine_with_highest_sum_of_priorities_is_assigned() -> None:
    machines = [ReadyMachine("m1", "plain"), ReadyMachine("m2", "reserved")]

    assignment = handed([a_ticket()], machines, suiting({"plain": 0, "reserved": 20}))

    assert assignment.leases == [Lease(1, "m2")]


def test_first_of_equally_preferred_kinds_is_assigned() -> None:
    machines = [ReadyMachine("m2", "b"), ReadyMachine("m3", "a")]

    assert handed([a_ticket()], machines, suiting({"b": 1, "a": 1})).leases == [Lease(1, "m2")]


def test_machine_in_its_sandbox_is_preferred() -> None:
    machines = [ReadyMachine("m1", "big"), ReadyMachine("m2", "big", "ada/ping")]

    assert handed([a_ticket(sandbox="ada/ping")], machines).leases == [Lease(1, "m2")]


def test_preference_of_used_machine_is_configurable() -> None:
    machines = [ReadyMachine("m1", "good"), ReadyMachine("m2", "poor", "ada/ping")]
    suits = suiting({"good": 10, "poor": 0})

    assignment = handed([a_ticket(sandbox="ada/ping")], machines, suits, Terms(prefer_reuse=5))

    assert assignment.leases == [Lease(1, "m1")]


@pytest.mark.parametrize("sandbox", ["ben/ping", ""])
def test_machine_of_another_sandbox_is_never_assigned(sandbox: str) -> None:
    machines = [ReadyMachine("m1", "big", "ada/ping")]

    assert handed([a_ticket(sandbox=sandbox)], machines).leases == []


def test_used_machines_are_assigned_by_preference() -> None:
    machines = [ReadyMachine("m1", "poor", "s"), ReadyMachine("m2", "good", "s")]

    assignment = handed([a_ticket(sandbox="s")], machines, suiting({"good": 10, "poor": 0}))

    assert assignment.leases == [Lease(1, "m2")]


PER_SUBMITTER = Limit(("tags", "big", "limits", "per", "submitter"), 2, "submitter")


def test_assignment_respects_a_limit() -> None:
    tickets = [*map(a_ticket, (1, 2, 3))]

    assert served(handed(tickets, 3, suiting(limits=(PER_SUBMITTER,)))) == [1, 2]


def test_machines_in_use_count_to_a_limit() -> None:
    tickets = [a_ticket(1, machine="x"), a_ticket(2, machine="y"), a_ticket(3)]

    assert served(handed(tickets, 3, suiting(limits=(PER_SUBMITTER,)))) == []


def test_one_user_cannot_use_all_machines() -> None:
    tickets = [*map(a_ticket, range(1, 9)), a_ticket(9, submitter="ben", owner="ben")]

    assert set(served(handed(tickets, 9, suiting(limits=(PER_SUBMITTER,))))) == {1, 2, 9}


@pytest.mark.parametrize("of", ["submitter", "owner", "team", "sandbox", "total"])
def test_limit_counts_by_its_field(of: str) -> None:
    alike = {"submitter": "ada", "owner": "core", "team": "t", "sandbox": "s"}
    tickets = [a_ticket(number, **alike) for number in (1, 2)]

    assert served(handed(tickets, 2, suiting(limits=(Limit(("x",), 1, of),)))) == [1]


def test_tickets_without_sandbox_are_each_in_a_separate_one() -> None:
    limits = (Limit(("x",), 1, "sandbox"),)

    assert served(handed([a_ticket(1), a_ticket(2)], 2, suiting(limits=limits))) == [1, 2]


def test_unknown_requesters_count_together() -> None:
    tickets = [a_ticket(number, team="") for number in (1, 2)]

    assert served(handed(tickets, 2, suiting(limits=(Limit(("x",), 1, "team"),)))) == [1]


def test_blocked_owner_gets_no_machine() -> None:
    assert handed([a_ticket()], 1, terms=Terms(blocked=frozenset({"ada"}))).leases == []


def test_ticket_with_low_priority_tag_is_served_last() -> None:
    first, last = ("arch_x86_64",), ("container",)
    low = a_ticket(1, tags=last, priority=9, opened_at=ago(hours=30), owner="ben")
    terms = Terms(class_of=lambda tags: tags == last)

    assert served(handed([low, a_ticket(2, tags=first)], 1, terms=terms)) == [2]
    assert served(handed([low], 1, terms=terms)) == [1]


# budgets


def spending(left: str, **takes: str) -> Terms:
    """Return terms with one budget: what it has left, what each kind of machine takes of it."""
    of_kinds = {("work", kind): Decimal(amount) for kind, amount in takes.items()}
    budget = TicketBudget(Decimal(left), of_kinds)
    return Terms(budgets=(budget,), group_of=lambda t: "work" if t.team == "blue" else "other")


def test_exhausted_budget_passes_machine_to_next_ticket() -> None:
    tickets = [a_ticket(1, team="blue"), a_ticket(2, team="blue"), a_ticket(3)]

    assignment = handed(tickets, 2, terms=spending("2", big="1.85"))

    assert assignment.leases == [Lease(1, "m1"), Lease(3, "m2")]


def test_ticket_gets_machine_that_its_budget_can_pay() -> None:
    machines = [ReadyMachine("m1", "dear"), ReadyMachine("m2", "cheap")]
    suits = suiting({"dear": 5, "cheap": 0})

    assignment = handed(
        [a_ticket(1, team="blue")], machines, suits, spending("1", dear="2", cheap="1")
    )

    assert assignment.leases == [Lease(1, "m2")]


def test_machine_of_sandbox_is_not_assigned_beyond_budget() -> None:
    machines = [ReadyMachine("m1", "dear", "s"), ReadyMachine("m2", "cheap")]
    ticket = a_ticket(1, team="blue", sandbox="s")

    assignment = handed(
        [ticket], machines, suiting({"dear": 5, "cheap": 0}), spending("1", dear="2", cheap="1")
    )

    assert assignment.leases == [Lease(1, "m2")]
