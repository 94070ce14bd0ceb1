"""Write the rule of fleet as a value, from which SQL and `Q` can be made.

A condition compares sets that are either written out or fields of a request or a worker. `RULE`
holds for any request and any worker; binding one side leaves a condition on the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from fleet.tagrules.offers import Ask, Offer
from fleet.tagrules.vocabulary import Numbers, unmet


class Tags(StrEnum):
    """A set of plain tags of a request or a worker."""

    REQUIRED = "required"
    PROVIDED = "provided"
    PROVIDES = "provides"
    REQUIRES = "requires"
    EXCLUSIVE = "exclusive"


class Amounts(StrEnum):
    """The numbers of a request or a worker."""

    MINIMUMS = "minimums"
    NUMBERS = "numbers"


@dataclass(frozen=True)
class Subset:
    """Every tag of the one is among those of the other."""

    part: Tags | frozenset[str]
    whole: Tags | frozenset[str]


@dataclass(frozen=True)
class Reached:
    """For every minimum there is a number that is not below it."""

    minimums: Amounts | Numbers
    numbers: Amounts | Numbers


@dataclass(frozen=True)
class And:
    """All of these hold; of none, it holds."""

    parts: tuple["Condition", ...]


Condition = Subset | Reached | And

RULE = And(
    (
        Subset(Tags.REQUIRED, Tags.PROVIDES),
        Subset(Tags.REQUIRES, Tags.PROVIDED),
        Subset(Tags.EXCLUSIVE, Tags.REQUIRED),
        Reached(Amounts.MINIMUMS, Amounts.NUMBERS),
    )
)


@dataclass(frozen=True)
class Known:
    """The fields of a request or of a worker, written out."""

    tags: Mapping[Tags, frozenset[str]]
    amounts: Mapping[Amounts, Numbers]


def know_ask(ask: Ask) -> Known:
    """Return the fields of a request; bound to them, `RULE` is a condition on workers."""
    return Known(
        tags={Tags.REQUIRED: ask.required, Tags.PROVIDED: ask.provided},
        amounts={Amounts.MINIMUMS: ask.minimums},
    )


def know_offer(offer: Offer) -> Known:
    """Return the fields of a worker; bound to them, `RULE` is a condition on requests."""
    return Known(
        tags={
            Tags.PROVIDES: offer.provides,
            Tags.REQUIRES: offer.requires,
            Tags.EXCLUSIVE: offer.exclusive,
        },
        amounts={Amounts.NUMBERS: offer.numbers},
    )


def bind(condition: Condition, known: Known) -> Condition:
    """Return the condition with these fields written out, without parts that hold for all."""
    match condition:
        case Subset(part, whole):
            return Subset(_tags(part, known), _tags(whole, known))
        case Reached(minimums, numbers):
            return Reached(_amounts(minimums, known), _amounts(numbers, known))
        case And(parts):
            bound = (bind(part, known) for part in parts)
            return And(tuple(part for part in bound if not _is_idle(part)))
        case _:
            assert_never(condition)


def holds(condition: Condition) -> bool:
    """Say whether a condition holds in which every field is written out."""
    match condition:
        case Subset(frozenset() as part, frozenset() as whole):
            return part <= whole
        case Reached(tuple() as minimums, tuple() as numbers):
            return not unmet(minimums, numbers)
        case And():
            return all(map(holds, condition.parts))
        case _:
            raise TypeError(f"a field of {condition} is not written out")


def _tags(given: Tags | frozenset[str], known: Known) -> Tags | frozenset[str]:
    return known.tags.get(given, given) if isinstance(given, Tags) else given


def _amounts(given: Amounts | Numbers, known: Known) -> Amounts | Numbers:
    return known.amounts.get(given, given) if isinstance(given, Amounts) else given


def _is_idle(condition: Condition) -> bool:
    """Say whether a condition holds whatever the other side is."""
    match condition:
        case Subset(part, _):
            return part == frozenset()
        case Reached(minimums, _):
            return minimums == ()
        case And(parts):
            return not parts
        case _:
            assert_never(condition)
