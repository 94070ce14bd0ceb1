"""This module says which tags Debusine counts of a worker, and which tasks a worker takes.

Facts of Debusine 0.16: a worker's tags are those it reports (but for classes and types, which it
may not give itself), those its administrator wrote (but for types), and one for its type. What
it requires of requests only the administrator can write. An allow-list of tasks, where there is
one, puts the deny-list out of use.

A worker provides the tag of every rung that it reaches, a request requires the lowest rung that
is not below its minimum. A minimum that stands on a rung is exact; one between two rungs asks
for more than it needs, never for less.

A worker reports what it can do, but gives itself no class; Debusine carries no numbers, so that a
figure is a class for each rung that it reaches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from fleet.schema.model import Fleet, Pool
from fleet.tagrules.numbers import Numbers
from fleet.tagrules.offers import ask_of_tags, offer_of_pool
from fleet.tagrules.sources import CLASS

TYPE_PREFIX = "worker:type:"
CLASS_PREFIX = "worker:class:"
TASK_TYPES = ("Worker", "Server", "Signing")
"""The types of tasks that workers run at all."""

LONGEST_TAG = 255
"""What a column for the tags of requests holds."""


@dataclass(frozen=True)
class TaskLists:
    """The names of the tasks that a worker takes."""

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    def take(self, task: str) -> bool:
        """Say whether a worker with these lists takes a task."""
        return task in self.allowed if self.allowed is not None else task not in self.denied


@dataclass(frozen=True)
class WorkerRow:
    """What Debusine's database holds of a worker, as far as it decides what it runs."""

    worker_type: str
    static_metadata: Mapping[str, Any]
    dynamic_metadata: Mapping[str, Any]

    @property
    def provides(self) -> frozenset[str]:
        """Return the tags that Debusine takes the worker to provide."""
        reported = _tags(self.dynamic_metadata, "provided_tags")
        written = _tags(self.static_metadata, "provided_tags")
        return frozenset(
            {tag for tag in reported if not tag.startswith((TYPE_PREFIX, CLASS_PREFIX))}
            | {tag for tag in written if not tag.startswith(TYPE_PREFIX)}
            | {TYPE_PREFIX + self.worker_type}
        )

    @property
    def requires(self) -> frozenset[str]:
        """Return the tags that a request must bring to be run by the worker."""
        return frozenset(_tags(self.static_metadata, "required_tags"))

    @property
    def tasks(self) -> TaskLists:
        """Return the names of the tasks that the worker takes."""
        both = {**self.dynamic_metadata, **self.static_metadata}
        allowed = both.get("tasks_allowlist")
        return TaskLists(
            allowed=None if allowed is None else tuple(_tags(both, "tasks_allowlist")),
            denied=tuple(_tags(both, "tasks_denylist")),
        )


def is_storable(text: str) -> bool:
    """Say whether PostgreSQL can hold a text at all: no NUL, no half of a character."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _tags(metadata: Mapping[str, Any], key: str) -> list[str]:
    found = metadata.get(key)
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


RUNGS: tuple[Decimal, ...] = (Decimal(0), *(Decimal(2**power) for power in range(41)))
"""0, then the powers of two up to above the highest number that a tag may state."""

PREFIX = "worker:class:"
"""Debusine lets only its administrators provide tags that begin like this."""


def ladder(name: str, number: Decimal, rungs: Iterable[Decimal] = RUNGS) -> tuple[str, ...]:
    """Return the tags that a worker with this number provides, lowest first."""
    return tuple(_tag(name, rung) for rung in sorted(set(rungs)) if rung <= number)


def rung_of_minimum(name: str, minimum: Decimal, rungs: Iterable[Decimal] = RUNGS) -> str | None:
    """Return the tag that stands for a minimum; None when it is above the highest rung."""
    above = [rung for rung in rungs if rung >= minimum]
    return _tag(name, min(above)) if above else None


def rungs_for(minimums: Iterable[Numbers]) -> tuple[Decimal, ...]:
    """Return the usual rungs with these minimums among them, so that each of them is exact."""
    asked = {number for numbers in minimums for _, number in numbers}
    return tuple(sorted({*RUNGS, *asked}))


def _tag(name: str, rung: Decimal) -> str:
    return f"{PREFIX}{name}-{rung:f}"


def rungs_of(fleet: Fleet) -> tuple[Decimal, ...]:
    """Return the rungs of a file: its own minimums are exact."""
    asked = [rule.ask for rule in fleet.powerful] + [[rule.ask] for rule in fleet.derive]
    return rungs_for(ask_of_tags(fleet, tags).minimums for tags in asked)


def static_tags(fleet: Fleet, name: str) -> Mapping[str, tuple[str, ...]]:
    """Return what the workers of a pool are said to provide and require, by Debusine's words."""
    pool = fleet.pools[name]
    offer = offer_of_pool(fleet, name, ())
    classes = sorted(tag for tag in offer.provides if tag.startswith(CLASS))
    climbed = [tag for each, n in offer.numbers for tag in ladder(each, n, rungs_of(fleet))]
    plain = [tag for tag in pool.provides if "=" not in tag]
    return {
        "provided_tags": tuple(dict.fromkeys([*plain, *classes, *climbed])),
        "required_tags": tuple(pool.requires) if isinstance(pool, Pool) else (),
    }
