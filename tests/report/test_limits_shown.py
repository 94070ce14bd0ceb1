"""Limits of users in every form of a plan."""

import re

from fleet.model.plan import LimitVerdict, Plan
from fleet.report.document import Form, Table
from fleet.report.plan import plan_to_markdown
from fleet.report.status import limits_section
from tests.builders import a_plan
from tests.rigs.shown import plan_to_text

PER_SUBMITTER = ("tags", "extra_powerful", "limits", "per", "submitter")


def a_limit(who: str | None = "ada", **overrides: object) -> LimitVerdict:
    """Return what is said of ada, who may have two machines and has one."""
    figures = {"limit": 2, "in_use": 1, "given": 0, "waiting": 0}
    said = {"path": PER_SUBMITTER, "who": who} | figures | overrides
    return LimitVerdict.model_validate(said)


def plan_with(*limits: LimitVerdict) -> Plan:
    return a_plan(limits=limits)


def shown(*limits: LimitVerdict) -> list[str]:
    """Return the payers of the limits that a terminal draws."""
    (table,) = limits_section(limits).blocks
    assert isinstance(table, Table)
    return [str(row.cells[1]) for row in table.rows if row.form is Form.ALL]


def test_limits_with_waiting_requests_are_shown_first() -> None:
    wide = a_limit("wide", limit=9)
    waited_for = a_limit("waited-for", limit=99, waiting=1)

    loose = [a_limit(f"loose{n}", limit=5) for n in range(9)]

    found = shown(wide, a_limit("tight"), *loose, a_limit("tightest", given=1), waited_for)

    names = [*(f"loose{n}" for n in range(9)), "tightest", "waited-for"]
    assert found == ["tight", *names]


def test_markdown_has_every_limit_folded_when_a_text_counts_them() -> None:
    plan = plan_with(*(a_limit(f"user-{n}", limit=9, in_use=n % 9) for n in range(100)))

    text = plan_to_markdown(plan)

    assert re.findall(r"\| user-(\d+) \|", text) == [str(n) for n in range(100)]
    assert "| user-34 | 7 | 0 | 0 | 9 |" in text
    assert "<details><summary>Limits</summary>" in text
    assert "  … and 88 limits with more left\n" in plan_to_text(plan)


def test_payer_of_a_limit_may_be_unknown() -> None:
    assert shown(a_limit(None)) == ["unknown"]
