"""What a machine is billed, one sentence per test."""

from datetime import timedelta
from decimal import Decimal

import pytest

from fleet.model.prices import Life, Tariff, bill, paid_until, tariff_at, tariff_of
from fleet.schema.model import Fleet, Pool
from tests.builders import NOW, a_fleet, a_pool, a_sim_fleet

HOURLY = Tariff(price=Decimal("0.36"), increment=3600)
BY_SECOND = Tariff(price=Decimal("0.36"), minimum=60)


def a_tariff(fleet: Fleet, kind: str = "ccx33") -> Tariff:
    pool = fleet.pools["builders"]
    assert isinstance(pool, Pool)
    tariff = tariff_of(fleet, pool, kind, "on-demand")
    assert tariff is not None
    return tariff


@pytest.mark.parametrize(
    ("seconds", "money"), [(0, "0"), (1, "0.36"), (3600, "0.36"), (3601, "0.72")]
)
def test_machine_billed_hourly_pays_each_started_hour(seconds: int, money: str) -> None:
    assert bill(HOURLY, seconds) == Decimal(money)


@pytest.mark.parametrize(
    ("seconds", "money"), [(0, "0"), (1, "0.006"), (60, "0.006"), (61, "0.0061")]
)
def test_machine_billed_per_second_pays_its_minimum_once(seconds: int, money: str) -> None:
    assert bill(BY_SECOND, seconds) == Decimal(money)


def test_machine_pays_at_most_its_monthly_cap() -> None:
    capped = Tariff(price=Decimal(1), increment=3600, cap=Decimal(624))

    assert bill(capped, 31 * 86400) == 624


def test_monthly_cap_restarts_each_month() -> None:
    capped = Tariff(price=Decimal(1), increment=3600, cap=Decimal(10))
    month = NOW + timedelta(hours=50)
    life = Life(capped, created_at=NOW, month=month)

    assert life.billed(month, month + timedelta(hours=4)) == 4
    assert life.billed(month, month + timedelta(hours=40)) == 10


def test_paid_time_ends_with_the_hour() -> None:
    assert paid_until(HOURLY, NOW, NOW) == NOW + timedelta(hours=1)
    assert paid_until(HOURLY, NOW, NOW + timedelta(minutes=59)) == NOW + timedelta(hours=1)
    assert paid_until(HOURLY, NOW, NOW + timedelta(minutes=60)) == NOW + timedelta(hours=1)
    assert paid_until(HOURLY, NOW, NOW + timedelta(minutes=61)) == NOW + timedelta(hours=2)


def test_only_minimum_is_paid_in_advance_when_billed_per_second() -> None:
    assert paid_until(BY_SECOND, NOW, NOW + timedelta(seconds=5)) == NOW + timedelta(minutes=1)
    assert paid_until(BY_SECOND, NOW, NOW + timedelta(hours=5)) == NOW + timedelta(hours=5)


def test_hour_is_billed_at_start_and_charged_over_time() -> None:
    life = Life(HOURLY, created_at=NOW, month=NOW - timedelta(days=1))
    half, whole = NOW + timedelta(minutes=30), NOW + timedelta(hours=1)

    assert (life.billed(NOW, half), life.billed(half, whole)) == (Decimal("0.36"), Decimal(0))
    assert (life.accrued(NOW, half), life.accrued(half, whole)) == (Decimal("0.18"),) * 2


def test_hetzner_tariff_has_type_and_address_capped_at_26_days() -> None:
    assert a_tariff(a_fleet()) == Tariff(
        price=Decimal("0.2227"), increment=3600, cap=Decimal("0.2227") * 624
    )


def test_disk_costs_only_above_size_of_the_type() -> None:
    def price(disk: str) -> Decimal:
        pool = a_pool(machine={"type": "ccx33", "disk": disk})
        return a_tariff(a_fleet(pools={"builders": pool})).price

    assert price("240GiB") == Decimal("0.2227")
    assert price("340GiB") == Decimal("0.2227") + 100 * Decimal("0.0000917")


def test_swap_costs_only_its_part_above_the_disk() -> None:
    def price(swap: str) -> Decimal:
        pool = a_pool(machine={"type": "ccx33", "swap": swap})
        return a_tariff(a_fleet(pools={"builders": pool})).price

    assert price("64GiB") == Decimal("0.2227")
    assert price("250GiB") == Decimal("0.2227") + 10 * Decimal("0.0000917")


def test_swap_is_added_to_required_disk() -> None:
    pool = a_pool(machine={"type": "ccx33", "disk": "200GiB", "swap": "64GiB"})

    tariff = a_tariff(a_fleet(pools={"builders": pool}))

    assert tariff.price == Decimal("0.2227") + 24 * Decimal("0.0000917")


def test_spot_machine_at_aws_costs_little_below_its_maximum() -> None:
    dollars = {"USD": {"rate": 1, "as_of": "2026-11-01"}}
    fleet = a_fleet(
        money={"exchange": dollars},
        providers={"amazon": {"kind": "aws", "region": "eu-central-1"}},
        pools={},
    )

    spot = tariff_at(fleet, "amazon", "c7a.8xlarge", "spot")

    on_demand = tariff_at(fleet, "amazon", "c7a.8xlarge", "on-demand")
    assert spot is not None
    assert on_demand is not None
    assert on_demand.price - spot.price == Decimal("1.87408") / 100


def test_price_stated_by_pool_is_the_whole_price() -> None:
    pool = a_pool(machine={"type": "ccx33", "disk": "1TiB", "price": "0.5 EUR/h"})

    assert a_tariff(a_fleet(pools={"builders": pool})).price == Decimal("0.5")


def test_aws_tariff_converts_disk_and_address_with_minimum_minute() -> None:
    fleet = a_fleet(
        money={"exchange": {"USD": {"rate": 0.5, "as_of": "2026-11-01"}}},
        providers={"amazon": {"kind": "aws", "region": "eu-central-1"}},
        pools={
            "builders": a_pool(
                provider="amazon", machine={"type": "c7a.8xlarge", "disk": "100GiB"}
            )
        },
    )

    tariff = a_tariff(fleet, "c7a.8xlarge")

    dollars = Decimal("1.87408") + Decimal("0.005") + 100 * Decimal("0.0001304")
    assert tariff == Tariff(price=dollars / 2, increment=1, minimum=60)


def test_tariff_is_none_without_exchange_rate() -> None:
    fleet = a_fleet(providers={"hetzner": {"kind": "aws", "region": "eu-central-1"}})

    assert tariff_at(fleet, "hetzner", "c7a.8xlarge", "on-demand") is None


def test_simulated_provider_bills_as_configured() -> None:
    billing = {"increment": "1h", "hours_per_month": 100, "address": "0.001 EUR/h"}
    provider = {"kind": "sim", "billing": billing}

    tariff = a_tariff(a_sim_fleet(providers={"desk": provider}))

    assert tariff == Tariff(price=Decimal("0.0787"), increment=3600, cap=Decimal("7.87"))


def test_simulated_tariff_is_per_second_by_default() -> None:
    assert a_tariff(a_sim_fleet()) == Tariff(price=Decimal("0.0777"))


def test_spot_machine_pays_full_price_of_address() -> None:
    provider = {
        "kind": "sim",
        "billing": {"address": "0.001 EUR/h"},
        "types": {
            "big": {
                "cores": 8, "memory": "16GiB", "disk": "80GiB",
                "price": "0.4 EUR/h", "spot": "0.1 EUR/h",
            }
        },
    }  # fmt: skip
    pool = a_pool(provider="desk", machine={"type": "big", "market": ["spot"]})
    fleet = a_sim_fleet(providers={"desk": provider}, pools={"builders": pool})

    tariff = tariff_of(fleet, pool, "big", "spot")

    assert tariff == Tariff(price=Decimal("0.101"))
