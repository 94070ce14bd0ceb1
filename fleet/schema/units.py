"""This module reads values that carry a unit and makes each a plain number in one unit."""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, WithJsonSchema

SIZE_PATTERN = r"^[1-9][0-9]{0,6}(MiB|GiB|TiB)$"
DURATION_PATTERN = r"^[1-9][0-9]{0,6}(s|m|h|d)$"
PERCENT_PATTERN = r"^[0-9]{1,4}%$"
MONEY_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})? [A-Z]{3}$"
PRICE_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,6})? [A-Z]{3}/h$"
DATE_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,29}[a-z0-9])?$"
FLEET_NAME_PATTERN = r"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$"

_MIB = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Money(BaseModel):
    """An amount of one currency, for instance `6 EUR`."""

    model_config = ConfigDict(frozen=True)

    amount: Decimal
    currency: str

    def __str__(self) -> str:
        """Return the amount the way fleet.yaml writes it."""
        return f"{self.amount} {self.currency}"


def written(value: int, pattern: str) -> str:
    """Return a number of seconds, MiB or percent the way fleet.yaml writes it."""
    if pattern == PERCENT_PATTERN:
        return f"{value}%"
    units = _SECONDS if pattern == DURATION_PATTERN else _MIB
    unit, size = next((u, s) for u, s in reversed(units.items()) if value % s == 0)
    return f"{value // size}{unit}"


def _from_text(pattern: str, what: str, parse: Callable[[str], Any]) -> BeforeValidator:
    """Return a validator that takes only text of one pattern; an already parsed value passes."""
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")

    def validate(value: object) -> object:
        if not isinstance(value, str):
            if isinstance(value, bool | int | float | list | dict | None):
                raise ValueError(f"expected {what}")  # noqa: TRY004 - pydantic collects ValueError
            return value
        if not compiled.match(value):
            raise ValueError(f"expected {what}")
        return parse(value)

    return BeforeValidator(validate)


def _written(pattern: str, example: str) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, "examples": [example]})


def _size(text: str) -> int:
    return int(text[:-3]) * _MIB[text[-3:]]


def _duration(text: str) -> int:
    return int(text[:-1]) * _SECONDS[text[-1]]


def _percent(text: str) -> int:
    return int(text[:-1])


def _money(text: str) -> Money:
    amount, currency = text.removesuffix("/h").split(" ")
    return Money(amount=Decimal(amount), currency=currency)


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError("expected a date that exists, like 2027-03-01") from None


class _Written:
    """How each quantity is written; kept apart so that types below read as one line each."""

    size = "a size like 4GiB (units MiB, GiB, TiB)"
    duration = "a duration like 30m (units s, m, h, d)"
    percent = "a share like 30%"
    money = "an amount with its currency like 6 EUR"
    price = "a price per hour like 0.35 EUR/h"
    date = "a date like 2027-03-01"


Mebibytes = Annotated[
    int, _from_text(SIZE_PATTERN, _Written.size, _size), _written(SIZE_PATTERN, "4GiB")
]
Seconds = Annotated[
    int,
    _from_text(DURATION_PATTERN, _Written.duration, _duration),
    _written(DURATION_PATTERN, "30m"),
]
Percent = Annotated[
    int, _from_text(PERCENT_PATTERN, _Written.percent, _percent), _written(PERCENT_PATTERN, "30%")
]
Amount = Annotated[
    Money, _from_text(MONEY_PATTERN, _Written.money, _money), _written(MONEY_PATTERN, "6 EUR")
]
PricePerHour = Annotated[
    Money,
    _from_text(PRICE_PATTERN, _Written.price, _money),
    _written(PRICE_PATTERN, "0.35 EUR/h"),
]
Day = Annotated[
    date,
    _from_text(DATE_PATTERN, _Written.date, _date),
    WithJsonSchema({"type": "string", "format": "date", "pattern": DATE_PATTERN}),
]


def _name(pattern: str, longest: int) -> AfterValidator:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")

    def validate(value: str) -> str:
        if not compiled.match(value):
            raise ValueError(
                "expected a name of lower-case letters, digits and hyphens, "
                f"beginning with a letter, at most {longest} long"
            )
        return value

    return AfterValidator(validate)


Name = Annotated[
    str, _name(NAME_PATTERN, 31), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})
]
FleetName = Annotated[
    str,
    _name(FLEET_NAME_PATTERN, 20),
    WithJsonSchema({"type": "string", "pattern": FLEET_NAME_PATTERN}),
]
