"""Documents as text, as tests read them."""

from fleet.cli.machine import sweep_blocks
from fleet.explain.changes import Comparison
from fleet.model.history import Outcome
from fleet.model.plan import Plan
from fleet.report.outcome import outcome_blocks
from fleet.report.plan import plan_blocks, status_blocks
from fleet.report.terminal import WIDTH, document_to_text


def plan_to_text(
    plan: Plan,
    *,
    colour: bool = False,
    change: Comparison | None = None,
    age: str = "",
    width: int = WIDTH,
) -> str:
    """Return what `fleet plan` prints."""
    return document_to_text(plan_blocks(plan, change, age), colour=colour, width=width)


def status_to_text(plan: Plan, *, colour: bool = False, width: int = WIDTH) -> str:
    """Return what `fleet status` prints."""
    return document_to_text(status_blocks(plan), colour=colour, width=width)


def sweep_to_text(plan: Plan, *, colour: bool = False) -> str:
    """Return what `fleet machine delete --expired` prints."""
    return document_to_text(sweep_blocks(plan), colour=colour)


def outcome_to_text(
    outcome: Outcome, plan: Plan, *, colour: bool = False, command: str = "fleet apply"
) -> str:
    """Return what `fleet apply` prints at its end."""
    return document_to_text(outcome_blocks(outcome, plan, command=command), colour=colour)
