"""Temporary orders of operators outside of fleet.yaml: freezes, holds, approvals.

They are in the store, so that every run obeys them immediately. They expire by themselves.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from fleet.model.values import Count, Moment, Value

FLEET = "fleet"
"""Author of orders that fleet gives itself."""
Frozen = Literal["creates", "deletes"]
FROZEN: tuple[Frozen, ...] = get_args(Frozen)


class _Order(Value):
    by: str = Field(description="Its author: a GitLab user, or user@host.")
    at: Moment = Field(description="Time of the order.")
    until: Moment = Field(description="Time when it expires.")
    reason: str

    @property
    def given(self) -> str:
        """Return author and expiry, as in `by ada until 04:00 UTC`."""
        day = "%H:%M" if self.until.date() == self.at.date() else "%Y-%m-%d %H:%M"
        return f"by {self.by} until {self.until:{day}} UTC"

    @property
    def said(self) -> str:
        """Return author, expiry and reason, as in `by ada until 04:00 UTC: disk full`."""
        return f"{self.given}: {self.reason}"


class Freeze(_Order):
    """Creations or deletions are stopped, in one pool or in all."""

    order: Literal["freeze"] = "freeze"
    pool: str | None = Field(None, description="None: every pool.")
    stops: Annotated[
        tuple[Frozen, ...], AfterValidator(lambda stops: tuple(sorted(stops, key=FROZEN.index)))
    ] = Field(FROZEN, description="Changes that it stops.")

    @property
    def key(self) -> str:
        """Return the key of this order: a later order with the same key replaces it."""
        return " ".join(("freeze", self.pool or "*", *self.stops))

    @property
    def what(self) -> str:
        """Return the frozen actions, as in `creates of pool builders`."""
        where = f"pool {self.pool}" if self.pool else "every pool"
        return f"{' and '.join(self.stops)} of {where}"

    @property
    def sentence(self) -> str:
        """Return one sentence with the order, its author, expiry and reason."""
        return f"{self.what} frozen {self.said}"


class Hold(_Order):
    """One machine gets no new work and is not deleted, despite all other reasons."""

    order: Literal["hold"] = "hold"
    machine: str

    @property
    def key(self) -> str:
        """Return the key of this order: a later order with the same key replaces it."""
        return f"hold {self.machine}"

    @property
    def sentence(self) -> str:
        """Return one sentence with the order, its author, expiry and reason."""
        return f"{self.machine} held {self.said}"


class GivenApproval(_Order):
    """An approval from the command line, in addition to the approvals in fleet.yaml."""

    order: Literal["approve"] = "approve"
    guard: Literal["delete", "cost_increase", "rival"]
    pool: str
    count: Count = Field(description="Total number of machines that may pass.")

    @property
    def key(self) -> str:
        """Return the key of this order: unique, so that approvals never replace each other."""
        return f"approve {self.guard} {self.pool} {self.at.isoformat()}"

    @property
    def sentence(self) -> str:
        """Return one sentence with the order, its author, expiry and reason."""
        return f"{self.count} of pool {self.pool} may pass guard {self.guard}, {self.said}"


def sentences(orders: Iterable["Order"]) -> Iterator[str]:
    """Yield the sentences of freezes and holds; approvals are shown with their guards."""
    return (order.sentence for order in orders if not isinstance(order, GivenApproval))


Order = Annotated[Freeze | Hold | GivenApproval, Field(discriminator="order")]
