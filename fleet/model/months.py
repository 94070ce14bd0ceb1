"""What is counted month by month beside the ledger, for the report of a month."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, NamedTuple

from pydantic import Field

from fleet.model.values import Value

TallyKind = Literal[
    "run",
    "package",
    "idle",
    "bound",
    "rule",
    "optimum",
    "gap",
    "wait",
    "unseen",
    "powerful",
    "needless",
]


class Tally(Value):
    """One figure of a month; adding what has the same month, kind and name adds it up."""

    month: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}$")
    kind: TallyKind
    name: str = ""
    count: int = 0
    seconds: int = 0
    nanos: int = Field(0, description="Money, in billionths of the fleet's currency.")


class Counted(NamedTuple):
    """What one run counted for its month, and what it saw waiting."""

    tallies: tuple[Tally, ...]
    waiting: Mapping[str, datetime]
    """Requests to since when they wait."""
