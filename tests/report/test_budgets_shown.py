"""How budgets read on every surface."""

import json
import re
from decimal import Decimal

from fleet.model.plan import BudgetVerdict, Plan
from fleet.report.document import Form, Table
from fleet.report.json import status_to_json
from fleet.report.plan import plan_to_markdown
from fleet.report.status import budgets_section
from fleet.site.files import Shown, site
from tests.builders import a_plan
from tests.builders.budgeting import a_budget_verdict
from tests.rigs.shown import plan_to_text, status_to_text

SILENT = a_budget_verdict(period="month", spent={"unknown": "no store"})


def plan_with(*budgets: BudgetVerdict) -> Plan:
    return a_plan(budgets=budgets)


def rows(*budgets: BudgetVerdict) -> list[list[str]]:
    (table,) = budgets_section(budgets).blocks
    assert isinstance(table, Table)
    return [[*map(str, row.cells)] for row in table.rows if row.form is Form.ALL]


def names(*budgets: BudgetVerdict) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in rows(*budgets)]


def test_unknown_spending_is_never_shown_as_zero() -> None:
    plan = plan_with(SILENT)

    for text in (
        plan_to_text(plan, colour=False),
        status_to_text(plan, colour=False),
        plan_to_markdown(plan),
        site(Shown(plan))["index.html"],
    ):
        assert text.count("unknown") >= 3
        assert rows(SILENT)[0][-1] in text
    (told,) = json.loads(status_to_json(plan))["budgets"]
    assert told["spent"] == told["left"] == {"unknown": "no store"}


def test_tightest_of_many_budgets_are_shown_in_order() -> None:
    def of(name: str, spent: int) -> BudgetVerdict:
        return a_budget_verdict(path=("budgets", name, "per_day"), spent=Decimal(spent))

    loose = [of(f"loose{n}", 1) for n in range(11)]

    found = names(of("a", 7), *loose, of("c", 5))

    assert [budget.split(".")[1] for budget, _ in found] == [
        *("a", *(f"loose{n}" for n in range(10)), "c")
    ]


def test_markdown_and_pages_have_every_budget_in_order() -> None:
    many = [
        a_budget_verdict(path=("budgets", f"b{n}", "per_day"), spent=Decimal(n) / 100)
        for n in range(100)
    ]

    text = plan_to_markdown(plan_with(*many))

    assert re.findall(r"\| `budgets\.b(\d+)\.", text) == [str(n) for n in range(100)]
    assert "| 0.07 |" in text
    page = site(Shown(plan_with(*many)))["index.html"]
    assert re.findall(r'"row">budgets\.b(\d+)\.', page) == [str(n) for n in range(100)]
    assert "<details><summary>Budgets</summary>" in text
    assert "… and" not in text
