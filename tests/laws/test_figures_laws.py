"""Laws of what is printed: every sum is that of its parts, on every surface that shows both."""

import re
from decimal import Decimal

from hypothesis import given

from fleet.guard import guard
from fleet.model.facts import World
from fleet.reconcile import reconcile
from fleet.report.document import Table
from fleet.report.status import budgets_section
from fleet.schema.model import Fleet
from fleet.tickets.reasons import find_held
from tests.laws.strategies import budgeted

_ROUNDED = Decimal("0.02")
"""Four figures of two places each."""
_SAID = re.compile(
    r"(?P<left>[\d.]+) of (?P<limit>[\d.]+) .* left .*"
    r"\((?P<spent>[\d.]+) spent, (?P<reserved>[\d.]+) reserved(, (?P<planned>[\d.]+) planned)?"
)


@given(budgeted())
def test_budget_remainder_equals_limit_minus_shown_parts(
    given: tuple[Fleet, World],
) -> None:
    fleet, world = given
    plan = guard(fleet, reconcile(fleet, world))

    (table,) = budgets_section(plan.budgets).blocks
    assert isinstance(table, Table)
    rows = [[*map(str, row.cells)] for row in table.rows if len(row.cells) > 1]
    told: list[tuple[str, ...]] = [
        (left, limit.partition(" ")[0], spent, reserved, planned)
        for _, _, spent, reserved, planned, left, limit, _ in rows
    ]
    for said in find_held(fleet, plan, "tickets").values():
        told += [
            each.group("left", "limit", "spent", "reserved", "planned")
            for each in map(_SAID.search, said.split("; "))
            if each
        ]

    assert told
    for left, limit, *parts in told:
        rest = Decimal(limit) - sum(Decimal(part or 0) for part in parts)
        assert abs(max(rest, Decimal(0)) - Decimal(left)) <= _ROUNDED
