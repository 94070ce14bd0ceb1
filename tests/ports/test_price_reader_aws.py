"""What asks AWS for prices tells those of what fleet buys, or says that it cannot."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from fleet.clouds.aws.machines import AwsPrices
from fleet.errors import SourceUnreachable
from fleet.model.facts import PriceList, Quote
from fleet.ports import PriceReader
from tests.builders import NOW
from tests.fakes.aws import aws_environment
from tests.fakes.aws_prices import C7A, REGION, Product, SimulatedPrices


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedPrices]:
    with SimulatedPrices() as aws:
        for name, value in aws_environment(aws.url).items():
            monkeypatch.setenv(name, value)
        yield aws


def reader(*, spot: tuple[str, ...] = ()) -> PriceReader:
    return AwsPrices(REGION, ["c7g.8xlarge", "c7a.8xlarge"], spot)


def test_prices_have_types_address_and_disk_of_region(aws: SimulatedPrices) -> None:
    told = reader(spot=("c7a.8xlarge",)).read(NOW)

    assert aws.received
    assert (told.read_at, told.location, told.currency) == (NOW, REGION, "USD")
    assert told.quotes["c7a.8xlarge"] == Quote(
        price=Decimal("1.87408"),
        month=Decimal("1394.31552"),
        cores=32,
        memory=64 * 1024,
        disk=0,
        architecture="amd64",
        spot=Decimal("0.7001"),
    )
    assert told.quotes["c7g.8xlarge"].architecture == "arm64"
    assert (told.address, told.disk) == (Decimal("0.005"), Decimal("0.0952"))
    assert PriceList.model_validate_json(told.model_dump_json()) == told


def test_spot_prices_are_read_only_when_used(aws: SimulatedPrices) -> None:
    told = reader().read(NOW)

    assert {quote.spot for quote in told.quotes.values()} == {None}
    assert [each for each in aws.received if "DescribeSpotPriceHistory" in each.body] == []


def test_unsold_type_has_no_quote(aws: SimulatedPrices) -> None:
    aws.market.products = [each for each in aws.market.products if each.service == "AmazonVPC"]

    told = reader().read(NOW)

    assert (told.quotes, told.disk) == ({}, None)


@pytest.mark.parametrize(
    ("code", "spot"), [("AccessDeniedException", ()), ("UnauthorizedOperation", ("c7a.8xlarge",))]
)
def test_refused_price_request_names_its_code(
    aws: SimulatedPrices, code: str, spot: tuple[str, ...]
) -> None:
    aws.market.refused = code

    with pytest.raises(SourceUnreachable, match=code):
        reader(spot=spot).read(NOW)


@pytest.mark.parametrize(
    "odd",
    [
        Product("AmazonEC2", C7A, "1e30"),
        Product("AmazonEC2", C7A, "-1"),
        Product("AmazonEC2", C7A, "NaN"),
        Product("AmazonEC2", C7A, "cheap"),
        Product("AmazonEC2", C7A | {"vcpu": "many"}, "1"),
        Product("AmazonEC2", C7A | {"memory": "NA"}, "1"),
    ],
    ids=lambda odd: f"{odd.price} {odd.attributes['vcpu']} {odd.attributes['memory']}",
)
def test_impossible_price_is_an_error(aws: SimulatedPrices, odd: Product) -> None:
    aws.market.products = [odd]

    with pytest.raises(SourceUnreachable):
        reader().read(NOW)
