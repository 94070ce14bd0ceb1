"""The valid tags of a worker in Debusine, and numbers in the form of class tags.

In Debusine 0.16, a worker has the tags that it reports (except classes and types), the tags that
its administrator set (except types), and a tag for its type. Only the administrator can set the
tags that it requires of requests.

Debusine has no numbers. A worker therefore provides a class tag for each step of a ladder up to
its number, and a request requires the tag of the lowest step that is not below its minimum. A
minimum between two steps is rounded up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fleet.schema.model import Fleet, Pool
from fleet.tagrules.offers import ask_of_tags, offer_of_pool
from fleet.tagrules.sources import CLASS
from fleet.tagrules.vocabulary import Numbers

TYPE_PREFIX = "worker:type:"


@dataclass(frozen=True)
class WorkerRow:
    """The columns of a worker in Debusine's database that decide which work the worker gets."""

    worker_type: str
    static_metadata: Mapping[str, Any]
    dynamic_metadata: Mapping[str, Any]

    @property
    def provides(self) -> frozenset[str]:
        """Return the tags that the worker provides, by Debusine's rules."""
        reported = tags_in(self.dynamic_metadata, "provided_tags")
        written = tags_in(self.static_metadata, "provided_tags")
        return frozenset(
            {tag for tag in reported if not tag.startswith((TYPE_PREFIX, CLASS))}
            | {tag for tag in written if not tag.startswith(TYPE_PREFIX)}
            | {TYPE_PREFIX + self.worker_type}
        )

    @property
    def requires(self) -> frozenset[str]:
        """Return the tags that a request must provide so that the worker may run the request."""
        return frozenset(tags_in(self.static_metadata, "required_tags"))


def tags_in(metadata: object, key: str) -> list[str]:
    """Return the tags under a key of a worker's metadata. Skip malformed values of users."""
    found = metadata.get(key) if isinstance(metadata, Mapping) else None
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


RUNGS: tuple[Decimal, ...] = (Decimal(0), *(Decimal(2**power) for power in range(41)))
"""Steps of the ladder: 0, and the powers of two up to the highest number in a tag."""


def ladder(name: str, number: Decimal, rungs: Iterable[Decimal] = RUNGS) -> tuple[str, ...]:
    """Return the class tags of a worker with this number, one per reached step, lowest first."""
    return tuple(_tag(name, rung) for rung in sorted(set(rungs)) if rung <= number)


def rung_of_minimum(name: str, minimum: Decimal, rungs: Iterable[Decimal] = RUNGS) -> str | None:
    """Return the class tag for a minimum, rounded up to a step; None above the highest step."""
    above = [rung for rung in rungs if rung >= minimum]
    return _tag(name, min(above)) if above else None


def rungs_for(minimums: Iterable[Numbers]) -> tuple[Decimal, ...]:
    """Return the usual steps together with these minimums, so that no minimum is rounded."""
    asked = {number for numbers in minimums for _, number in numbers}
    return tuple(sorted({*RUNGS, *asked}))


def _tag(name: str, rung: Decimal) -> str:
    return f"{CLASS}{name}-{rung:f}"


def rungs_of(fleet: Fleet) -> tuple[Decimal, ...]:
    """Return the steps for a fleet. They include all minimums that fleet.yaml requires."""
    asked = [rule.ask for rule in fleet.powerful] + [[rule.ask] for rule in fleet.derive]
    return rungs_for(ask_of_tags(fleet, tags).minimums for tags in asked)


def static_tags(fleet: Fleet, name: str) -> Mapping[str, tuple[str, ...]]:
    """Map Debusine's metadata keys to the tags that a pool's workers provide and require."""
    pool = fleet.pools[name]
    offer = offer_of_pool(fleet, name, ())
    classes = sorted(tag for tag in offer.provides if tag.startswith(CLASS))
    rungs = [tag for each, n in offer.numbers for tag in ladder(each, n, rungs_of(fleet))]
    plain = [tag for tag in pool.provides if "=" not in tag]
    return {
        "provided_tags": tuple(dict.fromkeys([*plain, *classes, *rungs])),
        "required_tags": tuple(pool.requires) if isinstance(pool, Pool) else (),
    }
