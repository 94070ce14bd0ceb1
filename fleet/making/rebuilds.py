"""This module says what building an image again takes and costs, as far as the last time tells."""

from collections.abc import Iterable
from decimal import Decimal

from fleet.catalogue.billing import bill, tariff_at
from fleet.facts.versions import ImageVersion, Rental
from fleet.plan.money import rates
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration

_PLACES = {
    "disk": "on the computer that ran it",
    "instance": "on a machine at its provider",
    "debusine": "on a worker of a Debusine server",
}
_UNRENTED = {
    "disk": "no machine was rented",
    "instance": "its cost is not known, for the machine was not recorded",
    "debusine": "its cost is not known here, for the server has the worker",
}


def describe_rebuild(fleet: Fleet, versions: Iterable[ImageVersion], image: str) -> str:
    """Return what the newest build of an image took of which that is known, and what it cost."""
    timed = [each for each in versions if each.image == image and each.built_in is not None]
    last = max(timed, key=lambda each: each.version, default=None)
    if last is None or last.built_in is None:
        return "how long a build takes and what it costs is not known: none was timed"
    place = _PLACES.get(last.way, "where is not known")
    took = f"the last build took {write_duration(last.built_in)} ({place})"
    if not last.rentals:
        return f"{took}; {_UNRENTED.get(last.way, 'its cost is not known')}"
    rented = ", ".join(
        f"{each.type} at {each.provider} for {write_duration(each.seconds)}"
        for each in last.rentals
    )
    cost = rental_cost(fleet, last.rentals)
    money = "at a price that is not known"
    if cost is not None:
        money = f"which costs {rates([cost])[0]} {fleet.money.currency}"
    return f"{took}; it rented {rented}, {money}"


def rental_cost(fleet: Fleet, rentals: Iterable[Rental]) -> Decimal | None:
    """Return what such machines are billed today, in the currency of the file; None: unknown."""
    bills = [_bill(fleet, each) for each in rentals]
    known = [each for each in bills if each is not None]
    return sum(known, Decimal(0)) if len(known) == len(bills) else None


def _bill(fleet: Fleet, rental: Rental) -> Decimal | None:
    if rental.provider not in fleet.providers:
        return None
    tariff = tariff_at(fleet, rental.provider, rental.type, "on-demand")
    return None if tariff is None else bill(tariff, rental.seconds)
