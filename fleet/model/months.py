"""Monthly counts for the report of a month, in addition to the ledger's amounts."""

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
    """A figure of a month. The store adds up figures with equal month, kind and name."""

    month: str = Field(pattern=r"^[0-9]{4}-[0-9]{2}$")
    kind: TallyKind
    name: str = ""
    count: int = 0
    seconds: int = 0
    nanos: int = Field(0, description="Money, in billionths of the fleet's currency.")


class Counted(NamedTuple):
    """The figures that a run adds to its month, and the waiting requests."""

    tallies: tuple[Tally, ...]
    waiting: Mapping[str, datetime]
    """Id of each waiting request to the start of its wait."""
