"""This module is what the simulated Hetzner sells, and where: locations, types, system images.

The figures are made up in the shape of the real ones; prices are those of no day.
"""

from collections.abc import Iterable
from decimal import Decimal

from fleet.service.hetzner_wire import Resource

_LOCATIONS = """
    1 fsn1 DE Falkenstein eu-central
    2 nbg1 DE Nuremberg eu-central
    3 hel1 FI Helsinki eu-central
    4 ash US Ashburn us-east
"""
_TYPES = """
    22 cpx11 2 2 40 shared x86 0.0063
    45 cax11 2 4 40 shared arm 0.0060
    93 cax21 4 8 80 shared arm 0.0104
    94 cax31 8 16 160 shared arm 0.0200
    95 cax41 16 32 320 shared arm 0.0392
    96 ccx13 2 8 80 dedicated x86 0.0200
    97 ccx23 4 16 160 dedicated x86 0.0392
    98 ccx33 8 32 240 dedicated x86 0.0777
    99 ccx43 16 64 360 dedicated x86 0.1546
    100 ccx53 32 128 600 dedicated x86 0.3085
    101 ccx63 48 192 960 dedicated x86 0.4620
"""
_IMAGES = """
    114690387 debian-12 12 x86
    114690389 debian-12 12 arm
    310557660 debian-13 13 x86
    310557663 debian-13 13 arm
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
    return {each["id"]: each for each in map(_server_type, _rows(_TYPES))}


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
        "volume": {"price_per_gb_month": _money(Decimal("0.0440"))},
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


def _server_type(row: list[str]) -> Resource:
    number, name, cores, memory, disk, cpu, architecture, price = row
    monthly = Decimal(price) * _HOURS_A_MONTH
    places = locations().values()
    return {
        "id": int(number),
        "name": name,
        "description": name.upper(),
        "category": "Dedicated" if cpu == "dedicated" else "Cost-Optimized",
        "cores": int(cores),
        "memory": float(memory),
        "disk": int(disk),
        "storage_type": "local",
        "cpu_type": cpu,
        "architecture": architecture,
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
            for each in places
        ],
        "prices": [
            {
                "location": each["name"],
                "price_hourly": _money(Decimal(price)),
                "price_monthly": _money(monthly),
                "included_traffic": 21_990_232_555_520,
                "price_per_tb_traffic": _money(Decimal(1)),
            }
            for each in places
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
