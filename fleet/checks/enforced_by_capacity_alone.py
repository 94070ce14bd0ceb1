"""This module finds exclusive and limited tags that the queue itself does not enforce."""

from collections.abc import Iterator

from fleet.schema.findings import Finding
from fleet.schema.model import Fleet
from fleet.tagrules.enforcement import Enforcement, enforcement_of


def enforced_by_capacity_alone(fleet: Fleet) -> Iterator[Finding]:
    """Warn where fleet buys for a promise that the scheduler does not keep."""
    for each in enforcement_of(fleet):
        if each.claim != "tag" and each.by == "capacity":
            yield Finding(
                "enforced-by-capacity-alone",
                f"at queue {each.queue} only capacity stands behind '{each.claim}' of "
                f"'{each.tag}': {each.because}",
                each.path,
                severity="warning",
                at="key",
                hint=_hint(each),
            )


def _hint(each: Enforcement) -> str:
    if each.claim == "limits":
        return "count on it for money, not for fairness; `fleet tags list` says who enforces what"
    return (
        "give the pools that provide it `requires` with a tag for such requests alone beside one "
        "that only Debusine provides, as in [task:fleet:NAME, task:scope:SCOPE]"
    )
