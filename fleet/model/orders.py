"""Temporary orders of operators that are not in fleet.yaml: freezes, holds, approvals.

Orders are in the store, so that every run obeys an order immediately. Every order expires.
"""

from datetime import datetime
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from fleet.model.values import Count, Moment, Value

FLEET = "fleet"
"""Author of orders that fleet creates itself."""
Frozen = Literal["creates", "deletes"]
FROZEN: tuple[Frozen, ...] = get_args(Frozen)


class _Order(Value):
    by: str = Field(description="Its author: a GitLab user, or user@host.")
    at: Moment = Field(description="Time of the order.")
    until: Moment = Field(description="Time when it expires.")
    reason: str

    @property
    def is_precaution(self) -> bool:
        """Return whether fleet replaces orders by this order because it cannot read them."""
        return self.by == FLEET and self.until == self.at

    @property
    def ends(self) -> datetime | None:
        """Return the time when the order expires; None if that depends on the store."""
        return None if self.is_precaution else self.until

    @property
    def given(self) -> str:
        """Return the author and the expiry, for example `by ada until 04:00 UTC`."""
        if self.is_precaution:
            return f"by {self.by} until the store is readable"
        day = "%H:%M" if self.until.date() == self.at.date() else "%Y-%m-%d %H:%M"
        return f"by {self.by} until {self.until:{day}} UTC"

    @property
    def said(self) -> str:
        """Return author, expiry and reason, for example `by ada until 04:00 UTC: disk full`."""
        return f"{self.given}: {self.reason}"


class Freeze(_Order):
    """An order to create or delete no machines, in one pool or in all pools."""

    order: Literal["freeze"] = "freeze"
    pool: str | None = Field(None, description="None: every pool.")
    stops: Annotated[
        tuple[Frozen, ...], AfterValidator(lambda stops: tuple(sorted(stops, key=FROZEN.index)))
    ] = Field(FROZEN, description="Changes that it stops.")

    @property
    def key(self) -> str:
        """Return the key of this order. A later order with the same key replaces this order."""
        return " ".join(("freeze", self.pool or "*", *self.stops))

    @property
    def what(self) -> str:
        """Return the forbidden changes, for example `creates of pool builders`."""
        where = f"pool {self.pool}" if self.pool else "every pool"
        return f"{' and '.join(self.stops)} of {where}"

    @property
    def sentence(self) -> str:
        """Return a sentence with the freeze, its author, expiry and reason."""
        return f"{self.what} frozen {self.said}"


class Hold(_Order):
    """An order that a machine gets no new work and is not deleted for any reason."""

    order: Literal["hold"] = "hold"
    machine: str

    @property
    def key(self) -> str:
        """Return the key of this order. A later order with the same key replaces this order."""
        return f"hold {self.machine}"

    @property
    def sentence(self) -> str:
        """Return a sentence with the hold, its author, expiry and reason."""
        return f"{self.machine} held {self.said}"


class GivenApproval(_Order):
    """An approval by `fleet approve`, in addition to the approvals in fleet.yaml."""

    order: Literal["approve"] = "approve"
    guard: Literal["boot_failures", "cost_increase", "delete", "rival"]
    pool: str
    count: Count = Field(description="Total number of machines that may pass.")

    @property
    def key(self) -> str:
        """Return the key of this order. It has the time, so that no approval replaces another."""
        return f"approve {self.guard} {self.pool} {self.at.isoformat()}"

    @property
    def sentence(self) -> str:
        """Return a sentence with the approval, its author, expiry and reason."""
        return f"{self.count} of pool {self.pool} may pass guard {self.guard}, {self.said}"


Order = Annotated[Freeze | Hold | GivenApproval, Field(discriminator="order")]
