"""Who gets which machine: by fit, priority, turn and age, within limits and sandboxes."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from fleet.model.tickets import Limit, Ticket
from fleet.tickets.assignment import ReadyMachine, Suitable, Terms, TicketBudget, assign
from tests.builders import NOW
from tests.builders.cases import Block, read_blocks
from tests.builders.ticketing import a_ticket

CASES = [*read_blocks(Path(__file__).parent / "assignments")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_tickets_get_the_machines_of_their_case(case: Block) -> None:
    assert leases_of(*case.parts) == case.result


def leases_of(tickets: str, machines: str, rules: str) -> str:
    """Return the leases as text."""
    waiting = [ticket_of(*each.split()) for each in tickets.split(",")]
    ready = [ReadyMachine(*_with_kind(each.split())) for each in machines.split(",")]
    suitable, terms = rules_of(rules)
    found = assign(waiting, ready, lambda _: suitable, terms, NOW).leases
    return ", ".join(f"{lease.ticket} {lease.machine}" for lease in found) or "nothing"


def _with_kind(words: list[str]) -> list[str]:
    return words if len(words) > 1 else [*words, "big"]


def ticket_of(number: str, *pairs: str) -> Ticket:
    said = {
        key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in pairs)
    }
    if age := said.pop("for", ""):
        unit = {"m": "minutes", "h": "hours"}[age[-1]]
        said["opened_at"] = NOW - timedelta(**{unit: int(age[:-1])})
    return a_ticket(int(number), **said)


def rules_of(text: str) -> tuple[Suitable, Terms]:
    """Return the kinds that suit every ticket, within limits, and the terms of the queue."""
    kinds, last, limits = {"big": 0}, frozenset[str](), []
    terms: dict[str, object] = {}
    for word, *rest in (rule.split() for rule in text.split(";") if rule.strip()):
        pairs = dict(pair.partition("=")[::2] for pair in rest)
        match word:
            case "suits":
                last = frozenset(filter(None, [pairs.pop("last", "")]))
                kinds = {kind: int(preference or 0) for kind, preference in pairs.items()}
            case "limit":
                limits.append(Limit(("tags", "big", "limits"), int(rest[1]), rest[0]))
            case "blocked":
                terms["blocked"] = frozenset(rest)
            case "low":
                terms["class_of"] = lambda tags, low=tuple(rest): tags == low
            case "budget":
                takes = {
                    ("work", kind): Decimal(amount) for kind, amount in pairs.items() if amount
                }
                terms["budgets"] = (TicketBudget(Decimal(rest[0]), takes),)
                terms["group_of"] = lambda ticket: "work" if ticket.team == "blue" else "other"
            case _:
                terms["prefer_reuse"] = int(word.partition("=")[2])
    return Suitable(kinds, tuple(limits), last=last), Terms(**terms)  # type: ignore[arg-type]  # any field
