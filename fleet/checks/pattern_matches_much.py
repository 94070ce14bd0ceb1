"""This module finds rules of the allow-list under which too much of a recorded queue falls."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING

from fleet.schema.findings import Finding, quoted
from fleet.schema.model import Fleet

if TYPE_CHECKING:
    from fleet.tagrules.names import Recorded

_FEW = 10
_SHOWN = 3


def pattern_matches_much(fleet: Fleet, recorded: "Recorded", today: date) -> Iterator[Finding]:
    """Warn of a rule that takes more names than `at_most`, or without it more than half."""
    if not fleet.powerful:
        return
    from fleet.tagrules.allow import AllowList

    total = len(recorded.names)
    for number, names in AllowList(fleet, today).count_names(recorded.names).items():
        rule = fleet.powerful[number]
        most = max(_FEW, total // 2) if rule.at_most is None else rule.at_most
        if len(names) > most:
            meant = "more than half" if rule.at_most is None else f"at most {most} are meant"
            yield Finding(
                "pattern-matches-much",
                f"{len(names)} of the {total} names in the recorded queue match, {meant}: "
                f"{_listed(names)}",
                ("powerful", number, "match"),
                severity="warning",
                hint="narrow it" if rule.at_most is None else "narrow it, or raise at_most",
            )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(quoted, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
