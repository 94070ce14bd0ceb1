"""This module says what a provider charges at one place, as it told on a day."""

from pydantic import Field

from fleet.facts.ledger import Cents
from fleet.facts.values import Moment, Value


class Quote(Value):
    """What a provider says of one machine type at one place."""

    price: Cents = Field(gt=0, le=10_000, description="Net, per hour.")
    month: Cents = Field(gt=0, le=10_000_000, description="Net, at most per calendar month.")
    cores: int = Field(ge=1, le=10_000)
    memory: int = Field(ge=1, le=2**30, description="MiB.")
    disk: int = Field(ge=0, le=2**40, description="MiB.")
    architecture: str


class PriceList(Value):
    """What a provider says of its machine types and prices at one place."""

    read_at: Moment
    location: str
    currency: str
    quotes: dict[str, Quote]
    address: Cents | None = Field(
        ge=0, le=10_000, description="A public IPv4 address, net, per hour."
    )
    disk: Cents | None = Field(ge=0, le=10_000, description="A GiB of disk, net, per month.")
    stale: str = Field(
        "",
        description="Why there is no newer one, though it is time; empty: it is new enough.",
        exclude_if=lambda why: not why,
    )
