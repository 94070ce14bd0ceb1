"""What a machine is billed: bills of tariffs, and the tariff of each kind of machine."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from fleet.model.prices import Life, Tariff, bill, paid_until, tariff_at, tariff_of
from fleet.schema.model import Fleet
from fleet.schema.pools import Market
from tests.builders import NOW, a_fleet, a_pool, a_sim_fleet

HOURLY = Tariff(price=Decimal("0.36"), increment=3600)
BY_SECOND = Tariff(price=Decimal("0.36"), minimum=60)
CAPPED = Tariff(price=Decimal(1), increment=3600, cap=Decimal(624))
CX33 = Decimal("0.2227")
"""An hour of a ccx33 at Hetzner with its address."""
GIB = Decimal("0.0000917")
AMAZON = {"amazon": {"kind": "aws", "region": "eu-central-1"}}
SPOT_TYPE = {"cores": 8, "memory": "16GiB", "disk": "80GiB", "price": "0.4 EUR/h"}


@pytest.mark.parametrize(
    ("tariff", "seconds", "money"),
    [
        *((HOURLY, 0, "0"), (HOURLY, 1, "0.36"), (HOURLY, 3600, "0.36"), (HOURLY, 3601, "0.72")),
        *((BY_SECOND, 0, "0"), (BY_SECOND, 1, "0.006"), (BY_SECOND, 60, "0.006")),
        *((BY_SECOND, 61, "0.0061"), (CAPPED, 31 * 86400, "624")),
    ],
)
def test_bill_has_started_steps_minimum_and_cap(tariff: Tariff, seconds: int, money: str) -> None:
    assert bill(tariff, seconds) == Decimal(money)


def test_monthly_cap_restarts_each_month() -> None:
    capped = Tariff(price=Decimal(1), increment=3600, cap=Decimal(10))
    month = NOW + timedelta(hours=50)
    life = Life(capped, created_at=NOW, month=month)

    assert life.billed(month, month + timedelta(hours=4)) == 4
    assert life.billed(month, month + timedelta(hours=40)) == 10


@pytest.mark.parametrize(
    ("tariff", "minutes", "paid"),
    [
        *((HOURLY, 0, 60), (HOURLY, 59, 60), (HOURLY, 60, 60), (HOURLY, 61, 120)),
        *((BY_SECOND, 0.1, 1), (BY_SECOND, 300, 300)),
    ],
)
def test_paid_time_ends_with_its_step(tariff: Tariff, minutes: float, paid: int) -> None:
    until = paid_until(tariff, NOW, NOW + timedelta(minutes=minutes))

    assert until == NOW + timedelta(minutes=paid)


def test_hour_is_billed_at_start_and_charged_over_time() -> None:
    life = Life(HOURLY, created_at=NOW, month=NOW - timedelta(days=1))
    half, whole = NOW + timedelta(minutes=30), NOW + timedelta(hours=1)

    assert (life.billed(NOW, half), life.billed(half, whole)) == (Decimal("0.36"), Decimal(0))
    assert (life.accrued(NOW, half), life.accrued(half, whole)) == (Decimal("0.18"),) * 2


def tariff(fleet: Fleet, kind: str = "ccx33", market: Market = "on-demand") -> Tariff | None:
    return tariff_of(fleet, fleet.dynamic_pools["builders"], kind, market)


@pytest.mark.parametrize(
    ("machine", "price"),
    [
        ({}, CX33),
        ({"disk": "240GiB"}, CX33),
        ({"disk": "340GiB"}, CX33 + 100 * GIB),
        ({"swap": "64GiB"}, CX33),
        ({"swap": "250GiB"}, CX33 + 10 * GIB),
        ({"disk": "200GiB", "swap": "64GiB"}, CX33 + 24 * GIB),
        ({"disk": "1TiB", "price": "0.5 EUR/h"}, Decimal("0.5")),
    ],
)
def test_hetzner_tariff_has_address_and_disk_above_that_of_the_type(
    machine: dict[str, Any], price: Decimal
) -> None:
    found = tariff(a_fleet(pools={"builders": a_pool(machine={"type": "ccx33"} | machine)}))

    assert found == Tariff(price=price, increment=3600, cap=price * 624)


def test_spot_machine_at_aws_costs_little_below_its_maximum() -> None:
    dollars = {"USD": {"rate": 1, "as_of": "2026-11-01"}}
    fleet = a_fleet(money={"exchange": dollars}, providers=AMAZON, pools={})
    spot, on_demand = (
        tariff_at(fleet, "amazon", "c7a.8xlarge", market) for market in ("spot", "on-demand")
    )

    assert spot is not None
    assert on_demand is not None
    assert on_demand.price - spot.price == Decimal("1.87408") / 100


def test_aws_tariff_converts_disk_and_address_with_minimum_minute() -> None:
    machine = {"type": "c7a.8xlarge", "disk": "100GiB"}
    fleet = a_fleet(
        money={"exchange": {"USD": {"rate": 0.5, "as_of": "2026-11-01"}}},
        providers=AMAZON,
        pools={"builders": a_pool(provider="amazon", machine=machine)},
    )

    dollars = Decimal("1.87408") + Decimal("0.005") + 100 * Decimal("0.0001304")
    expected = Tariff(price=dollars / 2, increment=1, minimum=60)
    assert tariff(fleet, "c7a.8xlarge") == expected
    without = a_fleet(providers=AMAZON, pools={})
    assert tariff_at(without, "amazon", "c7a.8xlarge", "on-demand") is None


@pytest.mark.parametrize(
    ("provider", "kind", "market", "expected"),
    [
        ({}, "ccx33", "on-demand", Tariff(price=Decimal("0.0777"))),
        (
            {"billing": {"increment": "1h", "hours_per_month": 100, "address": "0.001 EUR/h"}},
            *("ccx33", "on-demand"),
            Tariff(price=Decimal("0.0787"), increment=3600, cap=Decimal("7.87")),
        ),
        (
            {
                "billing": {"address": "0.001 EUR/h"},
                "types": {"big": SPOT_TYPE | {"spot": "0.1 EUR/h"}},
            },
            *("big", "spot"),
            Tariff(price=Decimal("0.101")),
        ),
    ],
)
def test_simulated_provider_bills_as_configured(
    provider: dict[str, Any], kind: str, market: Market, expected: Tariff
) -> None:
    pool = a_pool(provider="desk", machine={"type": kind, "market": [market]})
    fleet = a_sim_fleet(providers={"desk": {"kind": "sim"} | provider}, pools={"builders": pool})

    assert tariff(fleet, kind, market) == expected
