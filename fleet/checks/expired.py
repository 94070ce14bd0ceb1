"""This module finds rules and approvals that have stopped working, or soon will."""

from collections.abc import Iterator
from datetime import date

from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet

RULE = "expired"
_SOON = 30
_VERY_SOON = 7
_UNTIL_THEN = "`fleet plan` says how far it is used up"


def check(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn 30 and 7 days before a rule or an approval stops working, and afterwards."""
    for path, what, hints, day in _dated(fleet):
        left = (day - today).days
        if left < 0:
            message = f"{what} expired on {day}: it does nothing any more"
            yield _warning(path, message, hints[0])
        elif left <= _VERY_SOON:
            message = f"{what} expires {_when(day, left)}: from then on it does nothing"
            yield _warning(path, message, hints[1])
        elif left <= _SOON:
            message = f"{what} expires {_when(day, left)}"
            yield _warning(path, message, hints[2])


def _dated(fleet: Fleet) -> Iterator[tuple[Path, str, tuple[str, str, str], date]]:
    """Yield what has a last day, with what to do afterwards, in the last week and before."""
    for number, rule in enumerate(fleet.powerful):
        if rule.expires is not None:
            whom = rule.contact or "its contact"
            hints = (
                "remove it, or give it a later date",
                f"ask {whom} now, then move the date or remove it",
                f"ask {whom} whether it is still needed",
            )
            yield ("powerful", number, "expires"), "this rule", hints, rule.expires
    for number, approval in enumerate(fleet.approvals):
        left = "write a new one for the machines that are still to go"
        hints = (f"remove it, or {left}", f"if it will not be used up, {left}", _UNTIL_THEN)
        yield ("approvals", number, "expires"), "this approval", hints, approval.expires


def _warning(path: Path, message: str, hint: str) -> Finding:
    return Finding(RULE, message, path, severity="warning", hint=hint)


def _when(day: date, left: int) -> str:
    if left == 0:
        return "at the end of today"
    return f"on {day}, in 1 day" if left == 1 else f"on {day}, in {left} days"
