"""This module declares what bounds a run: budgets, guards and the approvals past a guard."""

from typing import Annotated, Literal

from pydantic import Field

from fleet.schema.base import Count, Section, Text, WorkerTag
from fleet.schema.units import Amount, Day, Percent, PoolName, PricePerHour, Seconds


class Budget(Section):
    """Money or machine time as a hard limit across pools."""

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


class RefuseDelete(Section):
    """Above either figure, deletions that demand did not cause are refused."""

    share: Percent = Field(30, description="Share of a pool's, and of the fleet's, machines.")
    count: Count = Field(10, description="Machines of a pool, and of the fleet.")


class Refuse(Section):
    """What a change of config, image or knowledge may not cause."""

    delete: RefuseDelete = Field(
        default_factory=RefuseDelete.model_construct, description="Deletions above either figure."
    )
    cost_increase: PricePerHour | None = Field(
        None, description="More money per hour than this; left out: no limit."
    )


class ThrottleDelete(Section):
    """How many deletions one run may make because of demand."""

    count: Count = Field(20, description="Machines of a pool, and of the fleet.")


class ThrottleCreate(Section):
    """How many creations one run may make because of demand."""

    share: Percent = Field(100, description="Share of the machines that exist.")
    free_below: Count = Field(10, description="Growth is measured from at least this many.")
    count: Count = Field(50, description="Machines of a pool, and of the fleet.")


class Throttle(Section):
    """What demand causes: the first N now, the rest next run."""

    delete: ThrottleDelete = Field(
        default_factory=ThrottleDelete.model_construct, description="Deletions in one run."
    )
    create: ThrottleCreate = Field(
        default_factory=ThrottleCreate.model_construct, description="Creations in one run."
    )


Boots = Annotated[int, Field(ge=1, le=50)]


class BootFailures(Section):
    """When a pool stops creating machines that do not come up."""

    stop_after: Boots = Field(
        3, description="Failures that stop a pool from booting that version of its image."
    )
    of_last: Boots = Field(5, description="Among this many latest boots of it, of a day at most.")
    fall_back: Literal["previous-image", "nothing"] = Field(
        "nothing",
        description="What the pool does then: boot the version before it, or make no machine.",
    )


class Guards(Section):
    """Limits on what one run may do, counted per pool and fleet-wide."""

    refuse: Refuse = Field(
        default_factory=Refuse.model_construct,
        description="What a change of config, image or knowledge may not cause.",
    )
    throttle: Throttle = Field(
        default_factory=Throttle.model_construct,
        description="What demand causes: the first N now.",
    )
    boot_failures: BootFailures = Field(
        default_factory=BootFailures.model_construct,
        description="When a pool stops creating machines that do not come up.",
    )
    demand_max_age: Seconds = Field(
        300, description="Demand read longer ago than this counts as unknown."
    )


class Approval(Section):
    """The narrow way past a guard: reviewed, spent as it is used, gone by itself."""

    guard: Literal["delete", "cost_increase", "rival"] = Field(
        description="Which guard lets it pass; `rival`: machines for requests of a queue that "
        "makes machines for them by itself too."
    )
    pool: PoolName = Field(description="For which pool.")
    count: Count = Field(description="How many machines it lets pass in all, over several runs.")
    reason: Text = Field(description="Why, for whoever reviews it.")
    expires: Day = Field(description="The last day it works.")
