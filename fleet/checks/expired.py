"""This module finds rules and approvals that have stopped working."""

from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from fleet.schema.findings import Finding, Path
from fleet.schema.model import Fleet


class Dated(NamedTuple):
    """What has a last day, and what to do about it afterwards, in the last week and before."""

    path: Path
    what: str
    day: date
    afterwards: str
    last_week: str
    before: str = ""
    """Empty of an approval, which is for one change: some weeks are as it should be."""


def expired(fleet: Fleet, today: date) -> Iterator[Finding]:
    """Warn of what does nothing any more."""
    for each in dated(fleet):
        if each.day < today:
            message = f"{each.what} expired on {each.day}: it does nothing any more"
            yield Finding("expired", message, each.path, severity="warning", hint=each.afterwards)


def dated(fleet: Fleet) -> Iterator[Dated]:
    """Yield the rules of the allow-list and the approvals that have a last day."""
    for number, rule in enumerate(fleet.powerful):
        if rule.expires is not None:
            whom = rule.contact or "its contact"
            yield Dated(
                path=("powerful", number, "expires"),
                what="this rule",
                day=rule.expires,
                afterwards="remove it, or give it a later date",
                last_week=f"ask {whom} now, then move the date or remove it",
                before=f"ask {whom} whether it is still needed",
            )
    for number, approval in enumerate(fleet.approvals):
        new = "write a new one for the machines that are still to go"
        yield Dated(
            path=("approvals", number, "expires"),
            what="this approval",
            day=approval.expires,
            afterwards=f"remove it, or {new}",
            last_week=f"if it will not be used up, {new}",
        )
