"""What budgets allow, one sentence per test. Machines cost 1 EUR/h; it is 08:00 on a Saturday."""

from pathlib import Path

import pytest

from fleet.model.facts import Unknown
from fleet.model.values import amount_of
from fleet.planner.budgets import BudgetAccount
from tests.builders.budgeting import (
    FREE,
    NEW,
    a_budgeted_fleet,
    a_busy,
    a_charge,
    a_group,
    a_spent_world,
    accounts,
)
from tests.builders.cases import Block, read_blocks
from tests.builders.decisions import Case, world_of
from tests.builders.sentences import tells

# what is left


CASES = [*read_blocks(Path(__file__).parent / "budgets")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_budget_has_the_figures_of_its_case(case: Block) -> None:
    assert figures_of(*case.parts) == case.result


def figures_of(pool: str, world: str, request: str) -> str:
    """Return the figures of each account, as text."""
    priced = f"machine: {{type: ccx33, price: 1 EUR/h}}, {pool}"
    case = Case("", priced, f"{world}, ledger", "", ())
    length, *said = request.split() or ["3600"]
    options = {key: float(value) for key, value in zip(said[::2], said[1::2], strict=True)}
    group = a_group(
        None if length == "unknown" else int(length),
        share=options.get("share", 1),
        count=int(options.get("count", 0)),
    )
    found = accounts(case.fleet, world_of(case.world), group)
    return "; ".join(map(describe, found)) or "none"


def describe(account: BudgetAccount) -> str:
    """Return what is spent, reserved and left, and what machines and requests take."""
    row = account.row
    taken = {
        "machine": row.machines.get(NEW.key),
        "its request": row.requests.get(("g", NEW.key)),
        "request": row.requests.get(("g", FREE.key)),
        "kept": row.kept.get(NEW.key),
    }
    figures = {"spent": amount_of(account.spent), "reserved": account.reserved, "left": row.room}
    parts = [
        f"{name} {float(round(value, 4)):g}"
        for name, value in (figures | taken).items()
        if value is not None and (value or name == "left")
    ]
    limit = account.limit
    return f"{limit.period} of {limit.amount:g} {limit.unit}: {', '.join(parts)}"


# what exists is reserved


def test_budget_has_no_remainder_when_machines_are_unknown() -> None:
    silent = Unknown(unknown="no answer")
    world = a_spent_world(providers={"desk": silent}, stacks={"builders": silent})

    today, _ = accounts(a_budgeted_fleet(budgets={"all": {"per_day": "9 EUR"}}), world)

    assert today.row.room == 0
    assert tells(today.row.because, "unknown", "pool builders", "unknown")


# who pays what


@pytest.mark.parametrize(
    ("only", "counts"),
    [
        ({"scope": "debian"}, True),
        ({"scope": "debian", "team": "x"}, False),
        ({"tags": ["big", "huge"]}, True),
        ({"tags": ["huge"]}, False),
        ({"scope": "debian", "tags": ["big"]}, True),
        ({"owner": "ann"}, False),
    ],
)
def test_budget_counts_only_work_that_matches_every_filter(
    only: dict[str, object], *, counts: bool
) -> None:
    fleet = a_budgeted_fleet(budgets={"some": {**only, "per_day": "10 EUR"}})
    charge = a_charge("1", scope="debian", tags=("big",))
    world = a_spent_world(a_busy(required=("big",)), charges=[charge])

    today, _ = accounts(fleet, world)

    taken = (bool(today.spent), bool(today.reserved), bool(today.row.requests))
    assert taken == (counts, counts, counts)


@pytest.mark.parametrize(
    ("own", "all_", "spent"),
    [({"per_day": "10 EUR"}, {}, 5), (None, {"budgets": {"all": {"per_day": "10 EUR"}}}, 6)],
    ids=["of a pool", "of all"],
)
def test_budget_counts_charges_of_its_pool_or_of_all(
    own: dict[str, str] | None, all_: dict[str, object], spent: int
) -> None:
    charges = [a_charge("4", scope="debian"), a_charge("1"), a_charge("1", pool="gone")]

    today, _ = accounts(a_budgeted_fleet(own, **all_), a_spent_world(charges=charges))

    assert today.spent == spent
