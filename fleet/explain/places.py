"""This module says of each place where a request could run when it ends, and what it costs."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product

from fleet.catalogue import find_types, markets_of
from fleet.catalogue.billing import bill, tariff_of
from fleet.demand import Ordered, ordered
from fleet.demand.durations import Durations, kind_at
from fleet.draft.layout import tail_seconds
from fleet.explain.counterfactual import find_request
from fleet.explain.reasons import Case
from fleet.explain.values import PlaceFacts
from fleet.facts.versions import ImageVersion
from fleet.making.image_choice import images_by_pool
from fleet.plan import Signature
from fleet.plan.money import rate
from fleet.schema.model import Fleet, Pool
from fleet.schema.units import write_duration
from fleet.tagrules import offer_of_pool


def places_of(case: Case, signature: Signature, key: str) -> tuple[PlaceFacts, ...]:
    """Return each way to make a machine for a request, in the order of fleet.yaml."""
    found = find_request(case.world, key)
    if found is None:
        return ()
    durations = Durations(case.fleet, case.world)
    (one, *_) = ordered(signature.queue, found[0], durations.of(signature.queue, found[0]))
    images = images_by_pool(case.fleet, case.world)
    return tuple(
        place
        for name in signature.pools
        if isinstance(pool := case.fleet.pools.get(name), Pool)
        for place in _in_pool(case, name, pool, images[name], one)
    )


def _in_pool(
    case: Case, name: str, pool: Pool, images: tuple[ImageVersion, ...], one: Ordered
) -> Iterator[PlaceFacts]:
    on_demand = bool(offer_of_pool(case.fleet, name, images).on_demand)
    tail = tail_seconds(case.fleet, pool, on_demand=on_demand)
    start = case.world.time + timedelta(seconds=pool.boot.expected)
    for known, market in product(find_types(case.fleet, pool), markets_of(pool)):
        kind = kind_at(case.fleet, name, known.name)
        seconds = one.seconds_on(kind)
        tariff = tariff_of(case.fleet, pool, known.name, market)
        yield PlaceFacts(
            pool=name,
            type=known.name,
            market=market,
            start=start,
            end=None if seconds is None else start + timedelta(seconds=seconds),
            seconds=seconds,
            cost=bill(tariff, tail + seconds) if tariff and seconds is not None else None,
            source=one.timing.source_on(kind) if one.timing and seconds is not None else "",
            deadline=one.timing.deadline if one.timing else None,
            own_deadline=bool(one.timing and one.timing.own_deadline),
            is_late=bool(one.timing and one.timing.is_late([kind], one.seconds)),
        )


def said_of_places(fleet: Fleet, places: tuple[PlaceFacts, ...], queue: str) -> Iterator[str]:
    """Yield a line for each place: start, end, cost."""
    for each in places:
        market = "" if each.market == "on-demand" else f" ({each.market})"
        where = f"new {each.type}{market} of pool {each.pool}"
        if each.seconds is None:
            yield f"{where}: from {_at(each.start)}; nothing says how long it runs"
            continue
        takes = write_duration(each.seconds) + (f", {each.source}" if each.source else "")
        if each.is_late:
            most = write_duration(each.deadline or 0)
            whose = "its own deadline" if each.own_deadline else f"deadline of queue {queue}"
            yield f"{where}: not possible, runs for {takes}, {whose} is {most}"
            continue
        price = "price not known" if each.cost is None else _money(fleet, each.cost)
        end = _at(each.end) if each.end else ""
        yield f"{where}: {_at(each.start)} to {end} ({takes}), {price}"


def _money(fleet: Fleet, cost: Decimal) -> str:
    return f"about {rate(cost.quantize(Decimal('0.0001')))} {fleet.money.currency}"


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
