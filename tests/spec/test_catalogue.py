"""What the shipped tables of machine types hold, and how they are read."""

from decimal import Decimal

import pytest

from fleet.catalogue.tables import table
from tools.refresh_catalogue import on_demand

HETZNER = {
    *("cx23", "cx33", "cx43", "cx53", "cax11", "cax21", "cax31", "cax41"),
    *("cpx12", "cpx22", "cpx32", "cpx42", "cpx52", "cpx62"),
    *("ccx13", "ccx23", "ccx33", "ccx43", "ccx53", "ccx63"),
}


@pytest.mark.parametrize("location", ["fsn1", "nbg1", "hel1"])
def test_every_type_that_hetzner_sells_in_europe_has_a_price(location: str) -> None:
    sold = {each.name for each in table("hcloud", location).types.values() if each.price}

    assert sold == HETZNER


def test_a_location_has_the_prices_of_its_zone() -> None:
    ashburn, hillsboro = (table("hcloud", each).types for each in ("ash", "hil"))

    assert ashburn["ccx33"].price == Decimal("0.2259")
    assert ashburn == hillsboro
    assert ashburn["cx33"].price is None


def test_every_current_family_of_ec2_has_prices_in_the_largest_region() -> None:
    types = table("aws", "us-east-1").types.values()

    assert len(types) == 293
    assert {each.line for each in types if each.price} >= {
        f"{kind}{line}" for kind in "cmr" for line in ("6a", "6i", "6g", "7a", "7i", "7g", "8g")
    }
    assert all(each.architecture == "arm64" for each in types if each.line.endswith("g"))


@pytest.mark.parametrize(
    ("kind", "place"), [("hcloud", "fsn1"), ("aws", "eu-central-1"), ("sim", "sim")]
)
def test_prices_are_dated_and_their_source_is_named(kind: str, place: str) -> None:
    shipped = table(kind, place)

    assert len(shipped.as_of.split("-")) == 3
    assert len(shipped.source) > 20
    assert all(each.price is None or each.price > 0 for each in shipped.types.values())


def test_at_a_place_without_prices_types_are_known_and_prices_are_not() -> None:
    shipped = table("aws", "mars-1")

    assert (shipped.as_of, shipped.types["c7a.2xlarge"].cores) == ("", 8)
    assert shipped.types["c7a.2xlarge"].price is None


def test_a_price_of_a_dedicated_machine_or_of_nought_is_left_out() -> None:
    told = {
        "c6a.large": (Decimal("0.0960"), 2),  # 10 % above: that of a dedicated machine
        "c6a.xlarge": (Decimal("0.1746"), 4),
        "c6a.2xlarge": (Decimal("0.3492"), 8),
        "c6a.4xlarge": (Decimal("0.0"), 16),
        "m6a.large": (Decimal("0.1035"), 2),  # alone: no other confirms it
    }

    assert on_demand(told) == {
        "c6a.xlarge": Decimal("0.1746"),
        "c6a.2xlarge": Decimal("0.3492"),
    }
