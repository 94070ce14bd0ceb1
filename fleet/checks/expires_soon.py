"""This module finds rules and approvals that will soon stop working."""

from collections.abc import Iterator
from datetime import date

from fleet.checks.expired import dated
from fleet.schema.findings import Finding
from fleet.schema.model import Fleet

_SOON = 30
_VERY_SOON = 7


def expires_soon(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn 30 and 7 days before a rule stops working, 7 days before an approval does."""
    for each in dated(fleet):
        left = (each.day - today).days
        if 0 <= left <= _VERY_SOON:
            message = f"{each.what} expires {_when(each.day, left)}: from then on it does nothing"
            yield Finding(
                "expires-soon", message, each.path, severity="warning", hint=each.last_week
            )
        elif 0 <= left <= _SOON and each.before:
            message = f"{each.what} expires {_when(each.day, left)}"
            yield Finding("expires-soon", message, each.path, severity="warning", hint=each.before)


def _when(day: date, left: int) -> str:
    if left == 0:
        return "at the end of today"
    return f"on {day}, in 1 day" if left == 1 else f"on {day}, in {left} days"
