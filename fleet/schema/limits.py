"""Sections of fleet.yaml that limit a run: budgets, guards and approvals."""

from typing import Annotated, Literal

from pydantic import Field

from fleet.schema.units import (
    Amount,
    ConfigSection,
    Count,
    Day,
    Percent,
    PoolName,
    PricePerHour,
    Seconds,
    Text,
    WorkerTag,
)


class Team(ConfigSection):
    """The members of a team, by the names that queues report."""

    users: list[Text] = Field([], description="User names.")
    groups: list[Text] = Field([], description="Group names, as in `members`.")
    owners: list[Text] = Field([], description="Owners of Copr projects: USER or @GROUP.")
    workspaces: list[Text] = Field([], description="Workspaces: NAME or SCOPE/NAME.")
    scopes: list[Text] = Field([], description="Scope names.")

    def of(self, kind: str) -> list[str]:
        """Return the members that a key of the team, such as `owners`, lists."""
        found: list[str] = getattr(self, kind)
        return found


TEAM_MEMBERS = ("users", "groups", "owners", "workspaces", "scopes")
"""The keys of a team in order of precedence: the first key that matches decides the team."""


class Budget(ConfigSection):
    """A hard limit on the cost or the machine time of several pools."""

    scope: Text | None = Field(None, description="Only work of this scope.")
    team: Text | None = Field(None, description="Only work of this team.")
    owner: Text | None = Field(None, description="Only work of this owner.")
    tags: list[WorkerTag] = Field([], description="Only work that asks for one of these tags.")
    per_hour: Amount | None = Field(None, description="Money per hour.")
    per_day: Amount | None = Field(None, description="Money per calendar day.")
    per_month: Amount | None = Field(None, description="Money per calendar month.")
    machine_hours_per_hour: Count | None = Field(None, description="Machine hours per hour.")
    machine_hours_per_day: Count | None = Field(
        None, description="Machine hours per calendar day."
    )
    machine_hours_per_month: Count | None = Field(
        None, description="Machine hours per calendar month."
    )

    @property
    def is_filtered(self) -> bool:
        """Return whether the budget counts only the work of a scope, team, owner or tag."""
        return bool(self.scope or self.team or self.owner or self.tags)


class RefuseDelete(ConfigSection):
    """Limits above which deletions that demand does not cause are refused."""

    share: Percent = Field(30, description="Share of the machines of a pool or of the fleet.")
    count: Count = Field(10, description="Machines of a pool or of the fleet.")


class Refuse(ConfigSection):
    """Limits on changes that an edit of fleet.yaml, a new image or lost facts cause."""

    delete: RefuseDelete = Field(
        default_factory=RefuseDelete.model_construct, description="Deletions above either limit."
    )
    cost_increase: PricePerHour | None = Field(
        None, description="Increase of cost per hour; default: no limit."
    )


class ThrottleDelete(ConfigSection):
    """Maximum number of machines that a run may delete because of demand."""

    count: Count = Field(20, description="Machines of a pool or of the fleet.")


class ThrottleCreate(ConfigSection):
    """Maximum number of machines that a run may create because of demand."""

    share: Percent = Field(100, description="Share of the machines that exist.")
    free_below: Count = Field(10, description="`share` is of at least this many machines.")
    count: Count = Field(50, description="Machines of a pool or of the fleet.")


class Throttle(ConfigSection):
    """Limits on changes that demand causes. Later runs make the remaining changes."""

    delete: ThrottleDelete = Field(
        default_factory=ThrottleDelete.model_construct, description="Deletions in one run."
    )
    create: ThrottleCreate = Field(
        default_factory=ThrottleCreate.model_construct, description="Creations in one run."
    )


Boots = Annotated[int, Field(ge=1, le=50)]


class BootFailures(ConfigSection):
    """Number of failed boots after which a pool creates no machines."""

    stop_after: Boots = Field(
        3,
        description="Failed boots after which a pool stops a version on a machine type.",
    )
    of_last: Boots = Field(
        5, description="Latest boots of the version on that type to count, within a day."
    )
    fall_back: Literal["previous-image", "nothing"] = Field(
        "nothing",
        description="Reaction of the pool: boot the previous version, or create no machines.",
    )


class Guards(ConfigSection):
    """Limits on the changes of a run, per pool and for the whole fleet."""

    refuse: Refuse = Field(
        default_factory=Refuse.model_construct,
        description="Changes that an edit, a new image or lost knowledge may not cause.",
    )
    throttle: Throttle = Field(
        default_factory=Throttle.model_construct,
        description="How many changes demand may cause in one run.",
    )
    boot_failures: BootFailures = Field(
        default_factory=BootFailures.model_construct,
        description="When a pool stops creating machines because they fail to boot.",
    )
    demand_max_age: Seconds = Field(300, description="Demand older than this counts as unknown.")


class Approval(ConfigSection):
    """Permission to exceed a guard, for a number of machines and a limited time."""

    guard: Literal["boot_failures", "cost_increase", "delete", "rival"] = Field(
        description="The guard to pass; `boot_failures`: machines whose image failed to boot; "
        "`rival`: machines for a queue that also creates its own."
    )
    pool: PoolName = Field(description="The pool whose machines may pass.")
    count: Count = Field(description="How many machines may pass in all, over several runs.")
    reason: Text = Field(description="The reason, for reviewers.")
    expires: Day = Field(description="The last day it is valid.")
