"""This module says what every fact is made of: immutable values, sets of tags, moments in UTC."""

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints


class Value(BaseModel):
    """An immutable value with a JSON form; extra keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _sorted_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(tags)))


Tags = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1)], ...], AfterValidator(_sorted_tags)
]
"""A set of tags, kept sorted and without repeats so that equal sets are equal values."""


def _aware(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("a time needs its zone, as in 2026-11-21T08:00:00Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time within the years 1 to 9999 of UTC") from None


Moment = Annotated[datetime, AfterValidator(_aware)]
