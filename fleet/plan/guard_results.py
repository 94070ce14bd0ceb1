"""This module holds what guards say and how far approvals are used up, as values of a plan."""

from datetime import date
from typing import Literal

from pydantic import Field

from fleet.facts.values import Value


class GuardResult(Value):
    """What one guard said, with its figures and its line of fleet.yaml."""

    guard: str
    pool: str | None = Field(None, description="None where it counts the whole fleet.")
    result: Literal["passed", "throttled", "refused"]
    because: str
    way_out: str = ""
    path: tuple[str | int, ...] = ()
    count: int = Field(0, description="How many machines it is about.")
    of: int = Field(0, description="How many machines the pool, or the fleet, holds.")
    approved: int = Field(0, description="How many of them approvals let pass in this run.")
    withheld: int = Field(0, description="How many actions it keeps back in this run.")
    limit: str = Field("", description="What fleet.yaml allows, as in `30% and at most 10`.")
    approve: tuple[str, ...] = Field(
        (), description="Lines to paste under `approvals`, one per pool, that would let it pass."
    )

    @property
    def is_worth_saying(self) -> bool:
        """Say whether it changes anything, or would have without an approval."""
        return self.result != "passed" or self.approved > 0


GuardName = Literal["delete", "cost_increase", "rival"]
"""The guards that an approval can let pass."""


class ApprovalVerdict(Value):
    """How far one approval is used up, and what it lets pass in this plan."""

    digest: str = Field(description="Of all it says: an edited approval is another one.")
    path: tuple[str | int, ...] = Field(description="Where it stands in fleet.yaml.")
    guard: GuardName
    pool: str
    count: int = Field(description="How many machines it lets pass in all.")
    used: int = Field(0, description="How many it let pass in earlier runs.")
    passes: tuple[str, ...] = Field((), description="Workers that it lets pass in this plan.")
    reason: str
    expires: date = Field(description="The last day it works.")
    inert: str = Field("", description="Why it lets nothing pass; empty where it may.")

    @property
    def left(self) -> int:
        """Return how many machines it may still let pass, this plan not counted."""
        return 0 if self.inert else max(0, self.count - self.used)
