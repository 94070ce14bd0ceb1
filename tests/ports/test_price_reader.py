"""The contract of PriceReader: all prices at one place, net, or an error."""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from fleet.clouds.hcloud.machines import HcloudPrices
from fleet.errors import SourceUnreachable
from fleet.model.facts import PriceList, Quote
from fleet.model.prices import table
from fleet.ports import PriceReader
from fleet.schema.model import HcloudProvider
from fleet.schema.units import EnvSecret
from simulators.hetzner.faults import Fault
from simulators.hetzner.server import SimulatedHetzner
from tests.builders import NOW
from tests.fakes.price_reader import FakePriceReader

CCX33 = Quote(
    price=Decimal("0.2219"),
    month=Decimal("138.4656"),
    cores=8,
    memory=32 * 1024,
    disk=240 * 1024,
    architecture="amd64",
)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedHetzner]:
    with SimulatedHetzner() as api:
        monkeypatch.setenv("HCLOUD_ENDPOINT", api.endpoint)
        yield api


def hetzner(location: str, token: str) -> HcloudPrices:
    secret = EnvSecret(env="HCLOUD_TOKEN")
    return HcloudPrices(HcloudProvider(kind="hcloud", location=location, token=secret), token)


def fake() -> FakePriceReader:
    told = PriceList(
        read_at=NOW,
        location="fsn1",
        currency="EUR",
        quotes={"ccx33": CCX33},
        address=Decimal("0.0008"),
        disk=Decimal("0.0572"),
    )
    return FakePriceReader(told)


@pytest.mark.parametrize("real", [True, False])
def test_prices_have_types_address_and_disk_of_location(
    api: SimulatedHetzner, *, real: bool
) -> None:
    reader: PriceReader = hetzner("fsn1", api.token) if real else fake()

    told = reader.read(NOW)

    assert (told.read_at, told.location, told.currency) == (NOW, reader.location, "EUR")
    assert told.quotes["ccx33"] == CCX33
    assert (told.address, told.disk) == (Decimal("0.0008"), Decimal("0.0572"))
    assert PriceList.model_validate_json(told.model_dump_json()) == told


def test_prices_include_all_pages_of_their_location(
    api: SimulatedHetzner,
) -> None:
    types = api.state.resources["server_types"]
    known = next(each for each in types.values() if each["name"] == "ccx33")
    for number in range(60):
        types[1000 + number] = {**known, "id": 1000 + number, "name": f"new{number}"}

    told = {at: hetzner(at, api.token).read(NOW) for at in ("fsn1", "ash")}

    shipped = {each.name for each in table("hcloud", "fsn1").types.values() if each.price}
    assert told["fsn1"].quotes.keys() == shipped | {f"new{number}" for number in range(60)}
    assert told["ash"].quotes["ccx33"].price == Decimal("0.2259")
    assert "cx33" not in told["ash"].quotes


@pytest.mark.parametrize("price", ["1e30", "-1", "0", "NaN"])
def test_impossible_price_is_an_error(api: SimulatedHetzner, price: str) -> None:
    (ccx33,) = [
        each for each in api.state.resources["server_types"].values() if each["name"] == "ccx33"
    ]
    for at in ccx33["prices"]:
        at["price_hourly"] = {"net": price, "gross": price}

    with pytest.raises(SourceUnreachable):
        hetzner("fsn1", api.token).read(NOW)


@pytest.mark.parametrize(
    ("fault", "token", "said"),
    [
        (Fault("GET", "/pricing", status=503), "", None),
        (Fault("GET", "/server_types", status=403), "", None),
        (Fault("GET", "/server_types", broken_off=True, count=None), "", None),
        (None, "wrong", "401"),
    ],
    ids=["busy", "forbidden", "broken off", "wrong token"],
)
def test_incomplete_prices_are_an_error(
    api: SimulatedHetzner, fault: Fault | None, token: str, said: str | None
) -> None:
    if fault is not None:
        api.fail(fault)

    with pytest.raises(SourceUnreachable, match=said):
        hetzner("fsn1", token or api.token).read(NOW)
    with pytest.raises(SourceUnreachable):
        FakePriceReader(None).read(NOW)
