"""How the price catalogue is compared with what a provider says, one sentence per test."""

from datetime import date
from decimal import Decimal

import pytest

from fleet.model.facts import PriceList, Quote
from fleet.report.prices import PriceReport, compare_prices, used_types
from tests.builders import NOW, a_fleet, a_pool
from tests.builders.sentences import tells

TODAY = date(2026, 11, 21)
QUOTE = Quote(
    price=Decimal("0.2219000000"),
    month=Decimal("138.49"),
    cores=8,
    memory=32 * 1024,
    disk=240 * 1024,
    architecture="amd64",
)
PRICES = PriceList(
    read_at=NOW,
    location="fsn1",
    currency="EUR",
    quotes={"ccx33": QUOTE},
    address=Decimal("0.0008000000"),
    disk=Decimal("0.0572000000"),
)


def differences(told: PriceList) -> dict[str, str]:
    check = compare_prices(a_fleet(), "hetzner", told, TODAY)
    return {each.what: "; ".join(each.differences) for each in check.prices if each.differences}


def test_equal_prices_have_no_differences() -> None:
    check = compare_prices(a_fleet(), "hetzner", PRICES, TODAY)

    assert [(each.what, each.catalogue) for each in check.prices] == [
        ("ccx33", "0.2219 EUR/h"),
        ("IPv4 address", "0.0008 EUR/h"),
        ("GiB of disk", "0.0000917 EUR/h"),
    ]
    assert differences(PRICES) == {}
    assert PriceReport(fleet="debian-ci", checks=(check,)).exit_code == 0


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"price": Decimal("0.2220")}, ("0.222 EUR/h",)),
        ({"month": Decimal(60)}, ("60 EUR/month", "138.4656")),
        ({"cores": 16}, ("cores 16", "8")),
        ({"memory": 1024}, ("memory 1024", "32768 MiB")),
        ({"disk": 1024}, ("disk 1024", "245760 MiB")),
        ({"architecture": "arm64"}, ("architecture arm64", "amd64")),
    ],
)
def test_machine_type_differs_by_price_or_size(
    said: dict[str, object], says: tuple[str, ...]
) -> None:
    quotes = {"ccx33": QUOTE.altered(**said)}

    found = differences(PRICES.altered(quotes=quotes))

    assert list(found) == ["ccx33"]
    assert tells(found["ccx33"], *says)
    assert ";" not in found["ccx33"]


def test_type_that_is_not_sold_differs() -> None:
    found = differences(PRICES.altered(quotes={}))

    assert list(found) == ["ccx33"]
    assert tells(found["ccx33"], "not sold")


def test_every_price_differs_in_another_currency() -> None:
    assert differences(PRICES.altered(currency="USD")).keys() == {
        "ccx33",
        "IPv4 address",
        "GiB of disk",
    }


def test_only_types_of_pools_are_compared() -> None:
    pools = {
        "one": a_pool(machine={"type": ["ccx63", "ccx33"]}),
        "two": a_pool(machine="ccx33"),
        "far": a_pool(provider="other", machine="ccx13"),
        "own": a_pool(machine={"cores": 1, "memory": "1GiB"}),
    }

    assert used_types(a_fleet(pools=pools), "hetzner") == ("ccx33", "ccx63")
