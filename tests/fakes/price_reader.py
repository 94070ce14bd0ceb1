"""A written reader of prices."""

from datetime import datetime

from fleet.errors import SourceUnreachable
from fleet.model.facts import PriceList


class FakePriceReader:
    """The prices of a provider, as a test says them; None: it does not answer."""

    def __init__(self, prices: PriceList | None, location: str = "fsn1") -> None:
        self.prices = prices
        self.location = location
        self.asked = 0

    def read(self, now: datetime) -> PriceList:
        """Return them."""
        self.asked += 1
        if self.prices is None:
            raise SourceUnreachable("it does not answer")
        return self.prices.altered(read_at=now, location=self.location)
