"""What the shipped tables of machine types hold, and how they are read."""

from datetime import timedelta
from decimal import Decimal

import pytest

from fleet.model.digests import config_digest, world_digest
from fleet.model.facts import PriceList, Quote
from fleet.model.price_lists import with_price_lists
from fleet.model.prices import find_types, price_per_hour, table
from fleet.schema.model import Pool
from tests.builders import NOW, a_fleet, a_pool, a_world
from tools.refresh_catalogue import TABLES, on_demand

LIST = PriceList(
    read_at=NOW,
    location="fsn1",
    currency="EUR",
    quotes={
        "new": Quote(
            price=Decimal("0.5"),
            month=Decimal(312),
            cores=3,
            memory=4096,
            disk=80 * 1024,
            architecture="amd64",
        )
    },
    address=Decimal(1),
    disk=Decimal("6.24"),
)
HETZNER = {
    *("cx23", "cx33", "cx43", "cx53", "cax11", "cax21", "cax31", "cax41"),
    *("cpx12", "cpx22", "cpx32", "cpx42", "cpx52", "cpx62"),
    *("ccx13", "ccx23", "ccx33", "ccx43", "ccx53", "ccx63"),
}


@pytest.mark.parametrize("location", ["fsn1", "nbg1", "hel1"])
def test_every_type_that_hetzner_sells_in_europe_has_a_price(location: str) -> None:
    sold = {each.name for each in table("hcloud", location).types.values() if each.price}

    assert sold == HETZNER


def test_location_has_the_prices_of_its_zone() -> None:
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


def test_location_without_prices_has_types_without_prices() -> None:
    shipped = table("aws", "mars-1")

    assert (shipped.as_of, shipped.types["c7a.2xlarge"].cores) == ("", 8)
    assert shipped.types["c7a.2xlarge"].price is None


def test_prices_of_dedicated_machines_and_zeros_are_omitted() -> None:
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


def test_refreshed_tables_are_those_that_fleet_reads() -> None:
    assert {path.name for path in TABLES.glob("*.csv")} >= {"aws.csv", "hcloud.csv"}


def test_price_list_of_provider_replaces_catalogue_prices() -> None:
    world = a_world(prices={"hetzner": LIST})
    fleet = with_price_lists(a_fleet(), world)

    listed = find_types(fleet, a_pool(machine={"type": "new", "disk": "100GiB"}))

    (known,) = listed
    assert (known.cores, known.memory, known.price) == (3, 4096, Decimal("0.5"))
    # An address, and 20 GiB above its own, a 624th of the monthly price each hour.
    assert price_per_hour(fleet, known, "on-demand") == Decimal("0.5") + 1 + 20 * Decimal("0.01")
    (gone,) = find_types(fleet, a_pool(machine="ccx33"))
    assert (gone.cores, gone.price) == (8, None)


def test_price_lists_do_not_change_config_digest() -> None:
    world = a_world(prices={"hetzner": LIST})
    fleet = with_price_lists(a_fleet(), world)

    assert config_digest(fleet) == config_digest(a_fleet())
    assert fleet.as_written() == a_fleet().as_written()
    assert with_price_lists(fleet, world) == fleet


def test_fleets_with_equal_price_lists_are_equal() -> None:
    fleet, later = a_fleet(), NOW + timedelta(minutes=10)
    listed = with_price_lists(fleet, a_world(prices={"hetzner": LIST}))
    newer = LIST.altered(quotes={})

    assert with_price_lists(fleet, a_world(time=later, prices={"hetzner": LIST})) is listed
    assert with_price_lists(fleet, a_world(prices={"hetzner": newer})) != listed


def test_world_digest_is_unchanged_without_price_lists() -> None:
    assert "prices" not in a_world().model_dump(mode="json")
    assert world_digest(a_world()) != world_digest(a_world(prices={"hetzner": LIST}))


def test_types_are_found_once_for_all_copies_of_a_pool() -> None:
    fleet = a_fleet()
    pool = fleet.pools["builders"]
    assert isinstance(pool, Pool)

    copies = [pool.model_copy(update={"workers": pool.workers.model_copy()}) for _ in range(2)]

    assert {id(find_types(fleet, each)) for each in (pool, *copies)} == {
        id(find_types(fleet, pool))
    }
