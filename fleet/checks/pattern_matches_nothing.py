"""This module finds rules of the allow-list under which nothing of a recorded queue falls."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING

from fleet.schema.findings import Finding, nearest, quoted
from fleet.schema.model import Fleet, PowerfulRule

if TYPE_CHECKING:
    from fleet.tagrules.names import Recorded

_COMPARED = 200
"""So many names are looked at for one that was meant."""


def pattern_matches_nothing(fleet: Fleet, recorded: "Recorded", today: date) -> Iterator[Finding]:
    """Warn of a rule that acts today and takes no name of a queue that was read in full."""
    if not fleet.powerful or not recorded.names or not recorded.complete:
        return
    from fleet.tagrules.allow import AllowList

    found = AllowList(fleet, today).count_names(recorded.names)
    for number, names in found.items():
        if not names:
            yield Finding(
                "pattern-matches-nothing",
                f"none of the {len(recorded.names)} names in the recorded queue matches",
                ("powerful", number, "match"),
                severity="warning",
                hint=_hint(fleet.powerful[number], recorded.names),
            )


def _hint(rule: PowerfulRule, names: Sequence[str]) -> str:
    from fleet.tagrules.allow import compile_pattern, without_directory

    pattern = compile_pattern(rule.match)
    if not rule.dirs:
        inside = next((n for n in names if ":" in n and pattern.takes(without_directory(n))), "")
        if inside:
            return f"with dirs: true it would match {quoted(inside)}"
    package = rule.match.rpartition("/")[2]
    alike = [name for name in names if name.rpartition("/")[2].startswith(package)]
    beginning = next((name for name in alike if pattern.takes_beginning(name)), "")
    if beginning:
        return f"it matches only the beginning of {quoted(beginning)}; a whole name must match"
    close = nearest(rule.match, [*alike, *names][:_COMPARED])
    if close:
        return f"the nearest name is {quoted(close)}"
    ends = f"; it ends by itself on {rule.expires}" if rule.expires else ""
    whom = f"ask {rule.contact} whether" if rule.contact else "remove it unless"
    return f"{whom} it is still needed{ends}"
