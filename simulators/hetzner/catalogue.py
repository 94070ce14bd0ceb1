"""What the simulated Hetzner sells, and where: locations, types, system images.

Types and prices are those of the shipped catalogue, in the shape of the real API.
"""

from collections.abc import Iterable
from decimal import Decimal

from fleet.model.prices import MachineType, table
from simulators.hetzner.wire import Resource

_LOCATIONS = """
    1 fsn1 DE Falkenstein eu-central
    2 nbg1 DE Nuremberg eu-central
    3 hel1 FI Helsinki eu-central
    4 ash US Ashburn us-east
"""
_IDS = """
    22 cpx11 23 cpx21 24 cpx31 25 cpx41 26 cpx51 45 cax11 93 cax21 94 cax31 95 cax41
    96 ccx13 97 ccx23 98 ccx33 99 ccx43 100 ccx53 101 ccx63
    108 cpx12 109 cpx22 110 cpx32 111 cpx42 112 cpx52 113 cpx62 114 cx23 115 cx33 116 cx43 117 cx53
"""
_IMAGES = """
    114690387 debian-12 12 x86
    114690389 debian-12 12 arm
    310557660 debian-13 13 x86
    310557663 debian-13 13 arm
    330557660 fedora-43 43 x86
"""
_HOURS_A_MONTH = 624


def locations() -> dict[int, Resource]:
    """Return the locations, by id."""
    return {each["id"]: each for each in map(_location, _rows(_LOCATIONS))}


def datacenters() -> dict[int, Resource]:
    """Return one data centre per location, by id: deprecated, but older clients read it."""
    sold = sorted(server_types())
    return {
        number: {
            "id": number,
            "name": f"{location['name']}-dc{number}",
            "description": f"{location['city']} DC {number}",
            "location": location,
            "server_types": {
                "supported": sold,
                "available": sold,
                "available_for_migration": sold,
            },
        }
        for number, location in locations().items()
    }


def server_types() -> dict[int, Resource]:
    """Return the server types, by id."""
    words = _IDS.split()
    ids = {name: int(number) for number, name in zip(words[::2], words[1::2], strict=True)}
    sold: dict[str, dict[str, MachineType]] = {}
    for each in locations().values():
        for known in table("hcloud", each["name"]).types.values():
            if known.price is not None:
                sold.setdefault(known.name, {})[each["name"]] = known
    return {ids[name]: _server_type(ids[name], places) for name, places in sold.items()}


def pricing(sold: Iterable[Resource]) -> Resource:
    """Return what everything costs, net and gross; `sold` are the server types."""
    places = [each["name"] for each in locations().values()]
    return {
        "currency": "EUR",
        "vat_rate": "19.000000",
        "primary_ips": [
            {"type": kind, "prices": [_priced(place, price) for place in places]}
            for kind, price in (("ipv4", Decimal("0.0008")), ("ipv6", Decimal(0)))
        ],
        "volume": {"price_per_gb_month": _money(Decimal("0.0572"))},
        "server_types": [
            {"id": each["id"], "name": each["name"], "prices": each["prices"]} for each in sold
        ],
    }


def _priced(place: str, price: Decimal) -> Resource:
    return {
        "location": place,
        "price_hourly": _money(price),
        "price_monthly": _money(price * _HOURS_A_MONTH),
    }


def system_images(created: str) -> dict[int, Resource]:
    """Return the images that everybody has, by id."""
    return {each["id"]: each for each in (_image(row, created) for row in _rows(_IMAGES))}


def _rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.strip().splitlines()]


def _location(row: list[str]) -> Resource:
    number, name, country, city, zone = row
    return {
        "id": int(number),
        "name": name,
        "description": f"{city} DC Park",
        "country": country,
        "city": city,
        "latitude": 50.0,
        "longitude": 12.0,
        "network_zone": zone,
    }


def _server_type(number: int, sold: dict[str, MachineType]) -> Resource:
    """Return one type; `sold` is what it is and costs, by the name of each location with it."""
    known = next(iter(sold.values()))
    here = [each for each in locations().values() if each["name"] in sold]
    return {
        "id": number,
        "name": known.name,
        "description": known.name.upper(),
        "category": "Dedicated" if known.line == "dedicated" else "Cost-Optimized",
        "cores": known.cores,
        "memory": known.memory / 1024,
        "disk": known.disk // 1024,
        "storage_type": "local",
        "cpu_type": known.line,
        "architecture": "arm" if known.architecture == "arm64" else "x86",
        "included_traffic": 0,
        "deprecated": False,
        "deprecation": None,
        "locations": [
            {
                "id": each["id"],
                "name": each["name"],
                "deprecation": None,
                "available": True,
                "recommended": True,
            }
            for each in here
        ],
        "prices": [
            {
                **_priced(name, at.price or Decimal(0)),
                "included_traffic": 21_990_232_555_520,
                "price_per_tb_traffic": _money(Decimal(1)),
            }
            for name, at in sold.items()
        ],
    }


def _money(net: Decimal) -> dict[str, str]:
    return {"net": f"{net:.10f}", "gross": f"{net * Decimal('1.19'):.16f}"}


def _image(row: list[str], created: str) -> Resource:
    number, name, version, architecture = row
    return {
        "id": int(number),
        "type": "system",
        "status": "available",
        "name": name,
        "description": f"Debian {version}",
        "image_size": None,
        "disk_size": 5,
        "created": created,
        "created_from": None,
        "bound_to": None,
        "os_flavor": "debian",
        "os_version": version,
        "architecture": architecture,
        "rapid_deploy": True,
        "protection": {"delete": False},
        "deprecated": None,
        "deleted": None,
        "labels": {},
    }
