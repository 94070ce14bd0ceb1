"""This module holds what a queue tells of all its requests, beside each request itself."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.schema.model import Fleet

if TYPE_CHECKING:
    # Checks of fleet.yaml need this package and no facts.
    from fleet.model.facts import Demand, TaskHistory

ENVIRONMENTS = "environments"
"""The one table of `lookups` that a queue may bring itself."""


@dataclass(frozen=True, eq=False)
class QueueContext:
    """What one queue tells, by its reading."""

    stored: bool = False
    """It stored the tags when a request became pending; they win."""
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    history: "Mapping[tuple[str, str], tuple[TaskHistory, ...]]" = field(default_factory=dict)
    """By task and package."""


NOTHING = QueueContext()


def queue_context(demand: "Demand") -> QueueContext:
    """Return what a reading tells beside its requests."""
    history: defaultdict[tuple[str, str], list[TaskHistory]] = defaultdict(list)
    for each in demand.history:
        history[each.task, each.package].append(each)
    known = {key: tuple(found) for key, found in history.items()}
    return QueueContext(demand.stored, demand.environments, known)


def find_differing_records(fleet: Fleet, told: QueueContext) -> Iterator[str]:
    """Yield where the file's table of environments and the queue's say different things."""
    if not any(rule.lookup == ENVIRONMENTS for rule in fleet.derive):
        return
    own = fleet.lookups.get(ENVIRONMENTS, {})
    for value in sorted(own.keys() & told.environments.keys()):
        theirs = told.environments[value]
        for key in sorted(own[value].keys() & theirs.keys()):
            if own[value][key] != theirs[key]:
                yield (
                    f"{key} of environment {value} is {theirs[key]}, but lookups.{ENVIRONMENTS} "
                    f"says {own[value][key]}: requests ask for both until one is mended"
                )
