"""Compare the price catalogue with today's prices of a provider.

Only prices that this fleet uses are compared: machine types of its pools, IPv4 addresses, disks.
"""

from collections.abc import Iterator
from datetime import date
from decimal import Decimal

from pydantic import Field

from fleet.explain.changes import HOURS_PER_MONTH
from fleet.model.facts import PriceList, Quote
from fleet.model.prices import (
    GIB_DIGITS,
    Billing,
    MachineType,
    billing_of,
    markets_of,
    own_list,
    shipped_types,
    table_of,
    type_names,
)
from fleet.model.values import Value
from fleet.report.document import Line, Style, StyledText, line
from fleet.schema.model import Fleet, Market
from fleet.words.figures import many

_TOLERANCE = Decimal("0.02")
"""Relative tolerance for a monthly price, which is a rounded multiple of the hourly price."""


class ComparedPrice(Value):
    """A comparison of one price in the catalogue with the price of the provider."""

    what: str
    catalogue: str
    differences: tuple[str, ...] = Field((), description="Different values of the provider.")
    today: str = Field("", description="Its price today, if plans use an upper bound.")


class PriceCheck(Value):
    """The result of a price comparison for one provider."""

    provider: str
    kind: str
    own: bool = Field(False, description="Plans use the provider's own list, from the store.")
    as_of: str = Field(
        "", description="The date of the catalogue; empty if plans use no catalogue."
    )
    age: int | None = Field(None, description="Days since `as_of`; null: no catalogue.")
    source: str = ""
    prices: tuple[ComparedPrice, ...] = ()
    unchecked: str = Field("", description="Reason why no price was compared; empty: compared.")
    failed: bool = Field(False, description="Whether a required comparison failed.")


class PriceReport(Value):
    """The results of the price comparison for all providers."""

    fleet: str
    checks: tuple[PriceCheck, ...]

    @property
    def exit_code(self) -> int:
        """Return the exit code: 1 if a price differs or could not be read, else 0."""
        differs = any(price.differences for each in self.checks for price in each.prices)
        return 1 if differs or any(each.failed for each in self.checks) else 0


def age_in_days(as_of: str, today: date) -> int | None:
    """Return the age of prices in days; None if their date is empty."""
    return (today - date.fromisoformat(as_of)).days if as_of else None


def compare_prices(fleet: Fleet, provider: str, prices: PriceList, today: date) -> PriceCheck:
    """Compare the price catalogue with the current prices of a provider."""
    declared, billing = fleet.providers[provider], billing_of(fleet, provider)
    shipped = table_of(declared)
    return PriceCheck(
        provider=provider,
        kind=declared.kind,
        own=own_list(declared) is not None,
        as_of=shipped.as_of,
        age=age_in_days(shipped.as_of, today),
        source=shipped.source,
        prices=(
            *(
                _compare(known, prices.quotes.get(name), prices.currency, billing)
                for name in used_types(fleet, provider)
                if (known := shipped_types(fleet, provider).get(name))
            ),
            *(
                _compare_spot(known, prices)
                for name in used_types(fleet, provider, "spot")
                if (known := shipped_types(fleet, provider).get(name))
            ),
            *_compare_extras(billing, prices),
        ),
    )


def used_types(fleet: Fleet, provider: str, market: Market | None = None) -> tuple[str, ...]:
    """Return the sorted machine types that a provider's pools use, optionally in one market."""
    pools = [
        pool
        for pool in fleet.dynamic_pools.values()
        if pool.provider == provider and (market is None or market in markets_of(pool))
    ]
    return tuple(sorted({name for pool in pools for name in type_names(pool)}))


def _compare(
    known: MachineType, quote: Quote | None, currency: str, billing: Billing
) -> ComparedPrice:
    return ComparedPrice(
        what=known.name,
        catalogue="no price" if known.price is None else f"{known.price} {known.currency}/h",
        differences=tuple(_differences(known, quote, currency, billing)),
    )


def _compare_spot(known: MachineType, prices: PriceList) -> ComparedPrice:
    """Compare the spot price with the upper bound that plans assume, because spot prices vary."""
    quote = prices.quotes.get(known.name)
    today = _format_price(quote.spot if quote else None, prices, "h")
    is_within = (
        known.spot is not None
        and quote is not None
        and quote.spot is not None
        and quote.spot <= known.spot.amount
        and prices.currency == known.spot.currency
    )
    return ComparedPrice(
        what=f"{known.name} on spot",
        catalogue="no price" if known.spot is None else f"at most {known.spot}/h",
        differences=() if is_within else (today,),
        today=today if is_within else "",
    )


def _differences(
    known: MachineType, quote: Quote | None, currency: str, billing: Billing
) -> Iterator[str]:
    if quote is None:
        yield "not sold there"
        return
    if (quote.price, currency) != (known.price, known.currency):
        yield f"{_format_plain(quote.price)} {currency}/h"
    most = known.price * billing.month if known.price and billing.month else None
    if most is not None and abs(quote.month - most) > _TOLERANCE * most:
        yield f"at most {_format_plain(quote.month)} {currency}/month, not {_format_plain(most)}"
    for name in ("cores", "memory", "disk"):
        theirs, ours = getattr(quote, name), getattr(known, name)
        if theirs != ours:
            yield f"{name} {theirs}, not {ours}" + ("" if name == "cores" else " MiB")
    if quote.architecture != known.architecture:
        yield f"architecture {quote.architecture}, not {known.architecture}"


def _compare_extras(billing: Billing, prices: PriceList) -> Iterator[ComparedPrice]:
    hours = billing.month or HOURS_PER_MONTH
    hourly = None if prices.disk is None else (prices.disk / hours).quantize(GIB_DIGITS)
    for what, ours, theirs, told in (
        ("IPv4 address", billing.address, prices.address, (prices.address, "h")),
        ("GiB of disk", billing.disk, hourly, (prices.disk, "month")),
    ):
        if ours is not None:
            amount, per = told
            is_same = (theirs, prices.currency) == (ours.amount, ours.currency)
            yield ComparedPrice(
                what=what,
                catalogue=f"{ours}/h",
                differences=() if is_same else (_format_price(amount, prices, per),),
            )


def _format_price(amount: Decimal | None, prices: PriceList, per: str) -> str:
    return "not sold" if amount is None else f"{_format_plain(amount)} {prices.currency}/{per}"


def _format_plain(amount: Decimal) -> str:
    return format(amount.normalize(), "f")


def prices_to_lines(report: PriceReport) -> Iterator[Line]:
    """Yield the equal, different and unchecked prices of each provider."""
    for check in report.checks:
        yield from _check(check)


def _check(check: PriceCheck) -> Iterator[Line]:
    dated = (
        f", {'its own list' if check.own else 'catalogue'} of {check.as_of}" if check.as_of else ""
    )
    if check.age is not None:
        dated += f", {many(check.age, 'day')} old"
    yield line(StyledText(f"{check.provider} ({check.kind}{dated})", Style.BOLD))
    if check.unchecked:
        style = Style.RED if check.failed else Style.YELLOW
        yield line("  ", StyledText("not checked", style), f": {check.unchecked}")
    for price in check.prices:
        known = f"  {price.what}  {price.catalogue}"
        if price.differences:
            provider = "; ".join(price.differences)
            yield line(
                "  ", StyledText("! differs", Style.RED), f"{known}; at the provider: {provider}"
            )
        else:
            today = f"; today: {price.today}" if price.today else ""
            yield line(
                "  ", StyledText("within" if today else "same", Style.GREEN), f"{known}{today}"
            )
