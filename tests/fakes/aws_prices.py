"""AWS's price list and spot market on the loopback, as far as fleet asks them (moto has no list).

The shapes are those of GetProducts (a JSON text per product) and of EC2's query API.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from urllib.parse import parse_qs

from tests.rigs.loopback import Answer, Loopback, Received

REGION = "eu-central-1"
C7A = {
    "instanceType": "c7a.8xlarge",
    "vcpu": "32",
    "memory": "64 GiB",
    "physicalProcessor": "AMD EPYC 9R14",
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}
C7G = C7A | {
    "instanceType": "c7g.8xlarge",
    "physicalProcessor": "AWS Graviton3 Processor",
}


@dataclass
class Product:
    """Something with a price on demand."""

    service: str
    attributes: Mapping[str, str]
    price: str
    currency: str = "USD"

    def to_json(self) -> str:
        """Return the text that GetProducts has of it."""
        dimensions = {"x.y": {"unit": "Hrs", "pricePerUnit": {self.currency: self.price}}}
        terms = {"OnDemand": {"x": {"priceDimensions": dimensions}}, "Reserved": {}}
        product = {"sku": "x", "attributes": {"regionCode": REGION, **self.attributes}}
        return json.dumps({"product": product, "terms": terms})


def sold() -> list[Product]:
    """Return what is sold: what fleet asks for, and what it must not take for that."""
    ipv4 = {"group": "VPCPublicIPv4Address"}
    gp3 = {"productFamily": "Storage", "volumeApiName": "gp3"}
    return [
        Product("AmazonEC2", C7A | {"tenancy": "Dedicated"}, "2.0614800000"),
        Product("AmazonEC2", C7A | {"operatingSystem": "Windows"}, "3.3460800000"),
        Product(
            "AmazonEC2", C7A | {"capacitystatus": "UnusedCapacityReservation"}, "1.8740800000"
        ),
        Product("AmazonEC2", C7A | {"regionCode": "us-east-1"}, "1.6422400000"),
        Product("AmazonEC2", C7A, "0.0000000000"),
        Product("AmazonEC2", C7A, "1.8740800000"),
        Product("AmazonEC2", C7G, "1.3248000000"),
        Product("AmazonVPC", ipv4 | {"usagetype": "EUC1-PublicIPv4:ContiguousBlock"}, "0.008"),
        Product("AmazonVPC", ipv4 | {"usagetype": "EUC1-PublicIPv4:InUseAddress"}, "0.005"),
        Product("AmazonEC2", gp3 | {"usagetype": "EUC1-EBS:VolumeP-IOPS.gp3"}, "0.006"),
        Product("AmazonEC2", gp3 | {"usagetype": "EUC1-EBS:VolumeUsage.gp3"}, "0.0952"),
    ]


@dataclass
class Market:
    """What AWS answers."""

    products: list[Product] = field(default_factory=sold)
    spot: list[tuple[str, str, str]] = field(
        default_factory=lambda: [
            ("c7a.8xlarge", f"{REGION}a", "0.6123000"),
            ("c7a.8xlarge", f"{REGION}b", "0.7001000"),
        ]
    )
    """Type, zone, price."""
    refused: str = ""
    """The code that every question is refused with."""
    page: int = 1
    """Products on a page."""

    def answer(self, asked: Received) -> Answer:
        """Answer one call."""
        if asked.headers.get("x-amz-target") == "AWSPriceListService.GetProducts":
            return self._list(json.loads(asked.body))
        form = {name: values[0] for name, values in parse_qs(asked.body).items()}
        assert form["Action"] == "DescribeSpotPriceHistory"
        return self._history(form)

    def _list(self, asked: Mapping[str, object]) -> Answer:
        if self.refused:
            return Answer(400, json.dumps({"__type": self.refused}).encode())
        filters = asked["Filters"]
        assert isinstance(filters, list)
        found = [
            each.to_json()
            for each in self.products
            if each.service == asked["ServiceCode"]
            and all(
                ({"regionCode": REGION} | dict(each.attributes)).get(f["Field"]) == f["Value"]
                for f in filters
            )
        ]
        begin = int(str(asked.get("NextToken", 0)))
        page = {"FormatVersion": "aws_v1", "PriceList": found[begin : begin + self.page]}
        after = begin + self.page
        more = {"NextToken": str(after)} if after < len(found) else {}
        return Answer(200, json.dumps(page | more).encode())

    def _history(self, form: Mapping[str, str]) -> Answer:
        if self.refused:
            code = f"<Code>{self.refused}</Code><Message>no</Message>"
            body = f"<Response><Errors><Error>{code}</Error></Errors></Response>"
            return Answer(403, body.encode(), {"Content-Type": "text/xml"})
        names = (f"InstanceType.{number}" for number in count(1))
        asked = {form[name] for name, _ in zip(names, form, strict=False) if name in form}
        items = "".join(
            f"<item><instanceType>{kind}</instanceType><spotPrice>{price}</spotPrice>"
            f"<availabilityZone>{zone}</availabilityZone></item>"
            for kind, zone, price in self.spot
            if kind in asked
        )
        body = (
            '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
            f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken/>"
            "</DescribeSpotPriceHistoryResponse>"
        )
        return Answer(200, body.encode(), {"Content-Type": "text/xml"})


class SimulatedPrices(Loopback):
    """What answers at `url`, from its `market`."""

    def __init__(self) -> None:
        self.market = Market()
        super().__init__(self.market.answer)
