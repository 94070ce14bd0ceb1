"""Sentences about the reasons for the number of machines in a pool."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from fleet.model.decisions import Decision, DecisionFigures, SizeReason
from fleet.schema.units import write_count


def size_decision(  # noqa: PLR0913 - the figures of a decision
    code: SizeReason,
    pool: str,
    count: int | None = None,
    *,
    waiting: int = 0,
    message: str = "",
    until: datetime | None = None,
) -> Decision:
    """Return a reason for the size of a pool. An empty message is derived from the code."""
    figures = DecisionFigures(count=count, waiting=waiting, until=until)
    decision = Decision(code=code, subject=(pool,), figures=figures, message=message)
    return decision if message else decision.altered(message=_WORDS[code](decision))


def describe_size(decisions: Iterable[Decision]) -> str:
    """Join the messages of the reasons for the size of a pool."""
    return "; ".join(each.message for each in decisions)


def _serves(decision: Decision) -> str:
    count = decision.figures.count
    are = "request is" if count == 1 else "requests are"
    return f"{count} waiting {are} served here"


def _could_serve(decision: Decision) -> str:
    count = decision.figures.count or 0
    wait = "waits" if count == 1 else "wait"
    return f"{write_count(count, 'request')} could run here, but {wait}"


def _replaces_later(decision: Decision) -> str:
    count = decision.figures.count
    return f"{count} {'worker waits' if count == 1 else 'workers wait'} to be replaced"


def _paid_hour(decision: Decision) -> str:
    machines = write_count(decision.figures.count or 0, "machine")
    return f"{machines} kept until the end of the paid hour"


def _demand_unknown(_: Decision) -> str:
    return "its demand is unknown"


def _no_demand(_: Decision) -> str:
    return "no requests wait for it"


def _describe_removed(_: Decision) -> str:
    return "removed from fleet.yaml: its machines are deleted when their work ends"


def _expired_only(_: Decision) -> str:
    return "a sweep considers only expired machines, not demand"


def _requested_only(_: Decision) -> str:
    return "only the named machines are considered, not demand"


def _guard_withholds(decision: Decision) -> str:
    figures = decision.figures
    withheld = f"a guard withholds {write_count(figures.count or 0, 'new machine')}"
    wait = "waits for it" if figures.waiting == 1 else "wait for them"
    requests = write_count(figures.waiting, "request")
    return f"{withheld}, so {requests} {wait}" if figures.waiting else withheld


def _guard_keeps(decision: Decision) -> str:
    return (
        f"a guard withholds the deletion of {write_count(decision.figures.count or 0, 'machine')}"
    )


_WORDS: Mapping[SizeReason, Callable[[Decision], str]] = {
    SizeReason.SERVES: _serves,
    SizeReason.COULD_SERVE: _could_serve,
    SizeReason.REPLACES_LATER: _replaces_later,
    SizeReason.PAID_HOUR: _paid_hour,
    SizeReason.DEMAND_UNKNOWN: _demand_unknown,
    SizeReason.NO_DEMAND: _no_demand,
    SizeReason.REMOVED: _describe_removed,
    SizeReason.EXPIRED_ONLY: _expired_only,
    SizeReason.REQUESTED_ONLY: _requested_only,
    SizeReason.GUARD_WITHHOLDS: _guard_withholds,
    SizeReason.GUARD_KEEPS: _guard_keeps,
}
