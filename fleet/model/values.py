"""Base types of facts: immutable values, sorted sets of tags, times in UTC."""

import hashlib
import json
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)


class Value(BaseModel):
    """An immutable value with a JSON form; unknown keys are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def altered(self, **changes: object) -> Self:
        """Return an unvalidated copy with these fields changed; the same fields count as set."""
        made = self.model_copy(update=changes)
        # Copies share one set of names. Otherwise the plan of 100,000 requests takes 416 MiB, not
        # 338, and `python -m bench plan` allows 400.
        object.__setattr__(made, "__pydantic_fields_set__", self.model_fields_set)
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
