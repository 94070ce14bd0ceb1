"""What every fact is made of: immutable values, sets of tags, moments in UTC."""

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
    """An immutable value with a JSON form; extra keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    def altered(self, **changes: object) -> Self:
        """Return the same with these fields changed, unchecked; the same fields count as set."""
        made = self.model_copy(update=changes)
        # Copies share one set, else the plan of 100,000 requests takes 416 MiB instead of 338:
        # `python -m bench plan` allows it 400.
        object.__setattr__(made, "__pydantic_fields_set__", self.model_fields_set)
        return made


def later(default: Any, description: str | None = None, **more: Any) -> Any:  # noqa: ANN401 - as Field
    """Return the field of a key that a format did not have at first.

    The key is left out while it has its default: what an older version saved keeps its digest.
    """
    return Field(default, description=description, exclude_if=lambda is_: is_ == default, **more)


FOR_PEOPLE = "for people"
"""Annotates a field that only people read: no digest counts it."""


def sorted_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return tags as a set is kept: sorted, without repeats."""
    return tuple(sorted(set(tags)))


Tags = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1)], ...], AfterValidator(sorted_tags)
]
"""A set of tags, kept sorted and without repeats so that equal sets are equal values."""


def sort_by(*names: str) -> AfterValidator:
    """Return a validator that sorts records by these attributes: equal sets are equal values.

    Records in which all of these are equal are sorted by their JSON.
    """

    def sort(records: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(records) < 2:  # noqa: PLR2004 - one has no order
            return records
        return tuple(sorted(records, key=_record_key))

    def _record_key(record: Any) -> tuple[object, ...]:  # noqa: ANN401 - any record
        return (*(getattr(record, name) for name in names), record.model_dump_json())

    return AfterValidator(sort)


MOST = 2**31 - 1
"""Seconds, requests, ranks: what is more is a mistake, and would not add up."""
Count = Annotated[int, Field(ge=0, le=MOST)]
_FIRST, _LAST = 1970, 2200


def in_utc(moment: datetime) -> datetime:
    """Return a moment in UTC; ValueError where its zone is not known, or it is out of range."""
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone, as in 2026-11-21T08:00:00Z")
    if not _FIRST <= moment.year <= _LAST:
        raise ValueError(f"a time within the years {_FIRST} to {_LAST}")
    return moment.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(in_utc)]


def moment_or_none(moment: datetime | None) -> datetime | None:
    """Return a moment in UTC; None if it is out of range, as a date that no one believes."""
    try:
        return None if moment is None else in_utc(moment)
    except ValueError:
        return None


BelievedMoment = Annotated[AwareDatetime | None, AfterValidator(moment_or_none)]
"""A moment of an answer; None if it is out of range, so that the rest of the answer counts."""
MAX_ID = 2**63 - 1
"""The largest id that a database gives."""
Id = Annotated[int, Field(ge=0, le=MAX_ID)]
Line = Annotated[str, StringConstraints(max_length=1_000)]
"""A name, tag or word of an answer; the longest of any server known to us has 317 characters."""
LongText = Annotated[str, StringConstraints(max_length=2_000_000)]
"""A text of an answer that has no shape; GitLab's comments have up to 1,000,000 characters."""
LineTags = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1, max_length=1_000)], ...],
    Field(max_length=10_000),
    AfterValidator(sorted_tags),
]
"""The tags of one request of an answer."""
Amount = Annotated[Decimal, Field(ge=0, le=10_000_000)]
"""An amount of money of an answer."""


class Word(StrEnum):
    """One of a few words."""


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def canonical_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the one JSON text of a value: keys sorted, no spaces."""
    return _CANONICAL.encode(value)


def digest(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the SHA-256 of a value's canonical JSON, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def first_mistake(error: ValidationError, whole: str = "the file") -> str:
    """Return where a value is first wrong, and how; `whole` where that is no part of it."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"
