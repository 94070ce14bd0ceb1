"""This module holds as a value what a change of fleet.yaml does: how two plans differ."""

from typing import Literal

from pydantic import Field

from fleet.changes.config import ConfigChange
from fleet.changes.images import ImageChange
from fleet.facts import Unknown
from fleet.facts.values import Value
from fleet.plan import Plan, Reason
from fleet.plan.money import Rate

Result = Literal["passed", "throttled", "refused"]
"""What a guard said."""


class Difference(Value):
    """What a pool's verdict said before and says now."""

    key: str
    before: str
    after: str


class PoolChange(Value):
    """A pool that came, went, or is another; its machines may be the same for now."""

    pool: str
    change: Literal["added", "removed", "changed"]
    differences: tuple[Difference, ...] = ()


class ActionsChange(Value):
    """Actions alike, of which the change makes more, or fewer."""

    pool: str
    action: Literal["create", "drain", "delete"]
    reason: Reason
    withheld: bool = Field(description="A guard keeps them back in this run.")
    type: str | None = Field(None, description="Of creations: the machine type.")
    image: str | None = Field(None, description="Of creations: the image.")
    settings: dict[str, str] = Field(default_factory=dict)
    before: int = Field(description="How many without the change.")
    after: int = Field(description="How many with it.")
    cost: Rate = Field(description="Money per hour that the difference adds in this run.")
    workers: tuple[str, ...] = Field(
        (), description="Drains and deletions: the workers that only one of both plans names."
    )
    because: str


class OutdatedChange(Value):
    """Machines of a pool that the change outdates, so that their turn to be replaced comes."""

    pool: str
    outdated: bool = Field(description="They are with the change; else they no longer are.")
    workers: tuple[str, ...]


class RequestsChange(Value):
    """Requests alike that the change gets a worker, or takes it from."""

    served: bool = Field(description="They have a worker with the change, and none without it.")
    queue: str
    required: tuple[str, ...] = ()
    requests: tuple[str, ...] = Field(description="Their ids, in the order they are served.")
    because: str
    path: tuple[str | int, ...] = Field((), description="The key of fleet.yaml that decides.")


class GuardChange(Value):
    """A guard that says something else because of the change."""

    guard: str
    pool: str | None = Field(None, description="None where it counts the whole fleet.")
    before: Result
    after: Result
    because: str
    path: tuple[str | int, ...] = ()
    way_out: str = ""


class Rest(Value):
    """What a fleet costs once nothing is replaced any more and nothing waits."""

    hour: Rate = Field(description="Money per hour.")
    month: Rate = Field(description="Money per month of 730 hours, or of those that are billed.")


class Changes(Value):
    """What a change of fleet.yaml does in the world as it is now."""

    base: str = Field(description="SHA-256 of the fleet.yaml that it is compared with.")
    same_config: bool = Field(description="Both fleet.yaml say the same, comments aside.")
    pools: tuple[PoolChange, ...] = ()
    actions: tuple[ActionsChange, ...] = ()
    outdated: tuple[OutdatedChange, ...] = ()
    requests: tuple[RequestsChange, ...] = ()
    guards: tuple[GuardChange, ...] = ()
    config: tuple[ConfigChange, ...] = Field(
        (), description="Other keys of fleet.yaml that differ, whatever comes of them."
    )
    images: tuple[ImageChange, ...] = Field((), description="Images that become due.")
    attention: tuple[str, ...] = Field((), description="What newly needs a person.")
    unknown: tuple[str, ...] = Field((), description="What could not be compared, and why.")
    cost_before: Rate = Field(description="Money per hour after a run without the change.")
    currency_before: str
    cost_after: Rate = Field(description="Money per hour after a run with it.")
    currency: str
    rest_before: Rest | None = Field(
        None, description="What it costs at rest without the change; None: not known."
    )
    rest_after: Rest | None = Field(None, description="The same with it.")

    @property
    def is_quiet(self) -> bool:
        """Say whether machines, money, requests and guards are the same without the change."""
        money = (self.cost_before, self.currency_before) != (self.cost_after, self.currency)
        machines = self.actions or self.outdated
        return not (money or machines or self.requests or self.guards or self.attention)


Comparison = Changes | Unknown
"""What a change does, or why that is not known."""


class ComparedPlan(Plan):
    """What should be, why, and at what cost; with `--base` also what the change does."""

    change: Comparison | None = Field(
        None,
        description="With --base: what the change does, or why that is not known. Else left out.",
    )
