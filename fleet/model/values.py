"""Base types of facts: immutable values, sorted sets of tags, times in UTC, money.

An amount of money may be unknown: it is then the reason why, never zero.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
)


class Value(BaseModel):
    """An immutable value with a JSON form; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def altered(self, **changes: object) -> Self:
        """Return an unvalidated copy with these fields changed; the same fields count as set."""
        # As `model_copy` does, but in less than half of its time: the plan of 100,000 requests has
        # 110,000 copies, and `python -m bench plan` allows 0.75 K. Copies share one set of names;
        # otherwise that plan takes 416 MiB, not 338, and 400 are allowed.
        made = self.__new__(type(self))
        object.__setattr__(made, "__dict__", self.__dict__ | changes)
        for name in ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"):
            object.__setattr__(made, name, getattr(self, name))
        return made


def later(default: Any, description: str | None = None, **more: Any) -> Any:  # noqa: ANN401 - as Field
    """Return a pydantic field for a key that a later version of a format added.

    The JSON omits the key while it has its default, so that older documents keep their digests.
    """
    return Field(default, description=description, exclude_if=lambda is_: is_ == default, **more)


FOR_PEOPLE = "for people"
"""Marks a field that only people read; digests exclude the field."""
ForPeople = Annotated[str, FOR_PEOPLE]
"""A sentence or a list of commands, which digests exclude."""


def sorted_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return sorted tags without duplicates."""
    return tuple(sorted(set(tags)))


Tags = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1)], ...], AfterValidator(sorted_tags)
]
"""A set of tags, sorted and without duplicates, so that equal sets are equal values."""


def sort_by(*names: str) -> AfterValidator:
    """Return a validator that sorts records by these attributes, so that equal sets are equal.

    Records with equal attributes are sorted by their JSON.
    """

    def sort(records: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(records) < 2:  # noqa: PLR2004 - a single record is sorted
            return records
        return tuple(
            sorted(
                records,
                key=lambda record: (
                    *(getattr(record, name) for name in names),
                    record.model_dump_json(),
                ),
            )
        )

    return AfterValidator(sort)


MOST = 2**31 - 1
"""Maximum of seconds, requests or ranks. Larger values are errors, because sums could overflow."""
Count = Annotated[int, Field(ge=0, le=MOST)]
_MIN_YEAR = 1970
_MAX_YEAR = 2200


def in_utc(moment: datetime) -> datetime:
    """Return the time in UTC; raises ValueError without a time zone or outside 1970 to 2200."""
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone, as in 2026-11-21T08:00:00Z")
    if not _MIN_YEAR <= moment.year <= _MAX_YEAR:
        raise ValueError(f"a time within the years {_MIN_YEAR} to {_MAX_YEAR}")
    return moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(in_utc)]


def moment_or_none(moment: datetime | None) -> datetime | None:
    """Return the time in UTC; None without a time zone or if its year is out of range."""
    try:
        return None if moment is None else in_utc(moment)
    except ValueError:
        return None


BelievedMoment = Annotated[AwareDatetime | None, AfterValidator(moment_or_none)]
"""A time in a server's response; None if out of range, so that the response stays valid."""
MAX_ID = 2**63 - 1
"""Maximum id in a database, a signed 64-bit integer."""
Id = Annotated[int, Field(ge=0, le=MAX_ID)]
Line = Annotated[str, StringConstraints(max_length=1_000)]
"""A name, tag or word in a response. The longest known one has 317 characters."""
LongText = Annotated[str, StringConstraints(max_length=2_000_000)]
"""A free text in a response. Comments in GitLab have up to 1,000,000 characters."""
LineTags = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=1_000)], ...],
    Field(max_length=10_000),
    AfterValidator(sorted_tags),
]
"""The tags of one request in a server's response."""
Amount = Annotated[Decimal, Field(ge=0, le=10_000_000)]
"""An amount of money in a server's response."""


class Word(StrEnum):
    """Base class of enumerations with words as values."""


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the JSON of a value with sorted keys and without spaces."""
    return _CANONICAL.encode(value)


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the SHA-256 of a value's canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def first_mistake(error: ValidationError, whole: str = "the file") -> str:
    """Return the path and message of the first error. `whole` names the whole value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"


_PLACES = Decimal("0.0001")
_MAX_AMOUNT = Decimal(10) ** 15


def _require_bounds(amount: Decimal) -> Decimal:
    if not (amount.is_finite() and abs(amount) < _MAX_AMOUNT):
        raise ValueError(f"money below {_MAX_AMOUNT:,}")
    return amount


@lru_cache(maxsize=10_000)  # many machines have few different prices
def as_rate(amount: Decimal) -> Decimal:
    """Round money per hour to four decimal places, so that displayed sums add up exactly."""
    # + 0 avoids a negative zero: equal values have equal JSON.
    return _require_bounds(amount).quantize(_PLACES) + 0


@lru_cache(maxsize=10_000)
def _format_amount(amount: Decimal) -> str:
    return format(as_rate(amount), "f")


Rate = Annotated[
    Decimal,
    AfterValidator(as_rate),
    PlainSerializer(_format_amount, return_type=str),
]
"""Money per hour in the currency of the plan, with four decimal places; a string in JSON."""


@lru_cache(maxsize=10_000)  # many machines have few different bills
def _plain(amount: Decimal) -> str:
    return format(amount.normalize() + 0, "f")


Bill = Annotated[
    Decimal, AfterValidator(_require_bounds), PlainSerializer(_plain, return_type=str)
]
"""Billed money, not rounded, so that parts add up to the total; a string in JSON."""


def rates(amounts: Sequence[Decimal], *, sign: bool = False) -> list[str]:
    """Format amounts with the same number of decimal places: as many as needed, at least two."""
    decimals = max(map(_decimals, amounts), default=2)
    form = f"{'+' if sign else ''}.{decimals}f"
    return [format(amount, form) for amount in amounts]


def rate(amount: Decimal) -> str:
    """Format an amount with as many decimal places as needed, at least two."""
    return rates([amount])[0]


def _decimals(amount: Decimal) -> int:
    exponent = amount.normalize().as_tuple().exponent
    return max(2, -exponent) if isinstance(exponent, int) else 2


CENT = Decimal("0.01")


def in_cents(amounts: Sequence[Decimal]) -> list[Decimal]:
    """Round amounts to cents in such a way that they add up to the rounded total."""
    total = sum(amounts, Decimal(0)).quantize(CENT, ROUND_HALF_EVEN)
    cents = [amount.quantize(CENT, ROUND_FLOOR) for amount in amounts]
    left = int((total - sum(cents, Decimal(0))) / CENT)
    by_rest = sorted(range(len(cents)), key=lambda nth: (cents[nth] - amounts[nth], nth))
    for nth in by_rest[: max(0, left)]:
        cents[nth] += CENT
    return cents


class UnknownFigure(Value):
    """The reason why an amount is unknown."""

    unknown: ForPeople


Figure = Rate | UnknownFigure
"""An amount of money, or the reason why the amount is unknown; 0 never means unknown."""


def amount_of(figure: Figure | None) -> Decimal | None:
    """Return the amount of a figure; None if the amount is unknown."""
    return figure if isinstance(figure, Decimal) else None
