"""Read today's prices of machine types from AWS's price list and from the spot market.

The filters below limit the price list to offers that fleet buys: Linux, shared tenancy, no
preinstalled software, on demand. AWS returns a JSON text for each product.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel, Field

from fleet.clouds.aws.account import AwsAccount
from fleet.clouds.cloud import trimmed
from fleet.errors import SourceUnreachable
from fleet.model.facts import PriceList, Quote
from fleet.model.values import Amount, Line

_HOURS_PER_MONTH = 744
"""Hours of the longest month, each of which EC2 bills."""
_OFFER_FILTER = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}
_IPV4_FILTER = {"group": "VPCPublicIPv4Address"}
_GP3_FILTER = {"productFamily": "Storage", "volumeApiName": "gp3"}


class _Dimension(BaseModel):
    price: dict[Line, Amount] = Field(alias="pricePerUnit")


class _Term(BaseModel):
    dimensions: dict[Line, _Dimension] = Field(alias="priceDimensions")


class _Terms(BaseModel):
    on_demand: dict[Line, _Term] = Field({}, alias="OnDemand")


class _Product(BaseModel):
    attributes: dict[Line, Line]


class _Offer(BaseModel):
    product: _Product
    terms: _Terms

    def prices(self) -> Iterator[tuple[str, Decimal]]:
        """Yield the currency and the amount of each price above zero."""
        for term in self.terms.on_demand.values():
            for dimension in term.dimensions.values():
                yield from (each for each in dimension.price.items() if each[1])


class _SpotPrice(BaseModel):
    name: Line = Field(alias="InstanceType")
    price: Amount = Field(alias="SpotPrice")


class AwsPrices:
    """The reader of prices of machine types in one AWS region."""

    def __init__(self, region: str, types: Collection[str], spot: Collection[str]) -> None:
        """`spot` contains the types whose spot price is also read."""
        self.location = region
        self._types = sorted(types)
        self._spot = sorted(spot)
        # Only a few regions serve the price list of all regions; China has a separate list.
        self._list = AwsAccount("cn-northwest-1" if region.startswith("cn-") else "us-east-1")

    def read(self, now: datetime) -> PriceList:
        """Return the current net prices; raises SourceUnreachable if prices are invalid."""
        spot = self._spot_prices(now)
        currency, quotes = "USD", {}
        try:
            for name in self._types:
                for offer in self._offers("AmazonEC2", {"instanceType": name} | _OFFER_FILTER):
                    for currency, price in offer.prices():  # noqa: B007 - all are in one
                        quotes[name] = _quote(offer.product.attributes, price, spot.get(name))
            return PriceList(
                read_at=now,
                location=self.location,
                currency=currency,
                quotes=quotes,
                address=self._price("AmazonVPC", _IPV4_FILTER, "PublicIPv4:InUseAddress"),
                disk=self._price("AmazonEC2", _GP3_FILTER, "EBS:VolumeUsage.gp3"),
            )
        except (ArithmeticError, ValueError) as error:
            said = str(error).splitlines()[-1].strip()
            raise SourceUnreachable(f"AWS returned impossible prices: {said}") from error

    def _price(self, service: str, asked: Mapping[str, str], usage: str) -> Decimal | None:
        """Return the price of a usage type; None if not sold. Regions may prefix its name."""
        found = (
            trimmed(price)
            for offer in self._offers(service, asked)
            if offer.product.attributes.get("usagetype", "").endswith(usage)
            for _, price in offer.prices()
        )
        return next(found, None)

    def _offers(self, service: str, asked: Mapping[str, str]) -> list[_Offer]:
        chosen = {"regionCode": self.location, **asked}
        filters = [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in chosen.items()
        ]
        with self._list.asked("pricing", "GetProducts") as pricing:
            pages = pricing.get_paginator("get_products").paginate(
                ServiceCode=service, Filters=filters
            )
            texts = [text for page in pages for text in page["PriceList"]]
            return [_Offer.model_validate_json(text) for text in texts]

    def _spot_prices(self, now: datetime) -> Mapping[str, Decimal]:
        """Map each type to its current hourly price in the region's most expensive zone."""
        if not self._spot:
            return {}
        dearest: dict[str, Decimal] = {}
        account = AwsAccount(self.location)
        with account.asked("ec2", "DescribeSpotPriceHistory") as ec2:
            pages = ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=self._spot, ProductDescriptions=["Linux/UNIX"], StartTime=now
            )
            for page in pages:
                for each in page["SpotPriceHistory"]:
                    told = _SpotPrice.model_validate(each)
                    dearest[told.name] = max(told.price, dearest.get(told.name, told.price))
        return {name: trimmed(price) for name, price in dearest.items()}


def _quote(attributes: Mapping[str, str], price: Decimal, spot: Decimal | None) -> Quote:
    graviton = "Graviton" in attributes.get("physicalProcessor", "")
    return Quote(
        price=trimmed(price),
        month=trimmed(price * _HOURS_PER_MONTH),
        cores=int(attributes.get("vcpu", "")),
        memory=int(float(attributes.get("memory", "").split(" ")[0].replace(",", "")) * 1024),
        disk=0,  # machines boot from a volume and do not use local disks
        architecture="arm64" if graviton else "amd64",
        spot=spot,
    )
