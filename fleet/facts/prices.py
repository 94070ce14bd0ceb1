"""This module says what a provider charges at one place, as it told on a day."""

from pydantic import Field

from fleet.facts.ledger import Cents
from fleet.facts.values import Moment, Value


class Quote(Value):
    """What a provider says of one machine type at one place."""

    price: Cents = Field(description="Net, per hour.")
    month: Cents = Field(description="Net, at most per calendar month.")
    cores: int
    memory: int = Field(description="MiB.")
    disk: int = Field(description="MiB.")
    architecture: str


class PriceList(Value):
    """What a provider says of its machine types and prices at one place."""

    read_at: Moment
    location: str
    currency: str
    quotes: dict[str, Quote]
    address: Cents | None = Field(description="A public IPv4 address, net, per hour.")
    disk: Cents | None = Field(description="A GiB of disk, net, per month.")
    stale: str = Field(
        "",
        description="Why there is no newer one, though it is time; empty: it is new enough.",
        exclude_if=lambda why: not why,
    )
