"""Facts from one reading of a queue that apply to all requests of the queue."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.schema.model import DebusineQueue, Fleet, WorldQueue

if TYPE_CHECKING:
    # Checks of fleet.yaml import this package without facts.
    from fleet.model.facts import Demand, TaskHistory

ENVIRONMENTS = "environments"
"""Name of the table of `lookups` that a queue itself may provide."""


@dataclass(frozen=True, eq=False)
class QueueContext:
    """Facts from one reading of a queue that its requests do not contain."""

    stored: bool = False
    """Whether the queue stored tags when requests became pending. Stored tags take precedence."""
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    history: "Mapping[tuple[str, str], tuple[TaskHistory, ...]]" = field(default_factory=dict)
    """Map of (task, package) to the resources that earlier runs used."""
    any_environment: bool = False
    """Whether requests with an environment in no look-up table may run on any architecture."""


NOTHING = QueueContext()


def queue_context(demand: "Demand", *, any_environment: bool = False) -> QueueContext:
    """Return the facts of a reading that apply to all of its requests."""
    history: defaultdict[tuple[str, str], list[TaskHistory]] = defaultdict(list)
    for each in demand.history:
        history[each.task, each.package].append(each)
    known = {key: tuple(found) for key, found in history.items()}
    return QueueContext(demand.stored, demand.environments, known, any_environment)


def context_of(fleet: Fleet, queue: str, demand: "Demand") -> QueueContext:
    """Return the facts of a reading, cached for the same reading and fleet."""
    rests_on = (demand.stored, demand.environments, demand.history)
    declared = fleet.queues.get(queue)
    is_any = isinstance(declared, DebusineQueue | WorldQueue) and declared.any_environment
    return fleet.cached(
        ("context", queue),
        rests_on,
        lambda: queue_context(demand, any_environment=is_any),
    )


def find_differing_records(fleet: Fleet, context: QueueContext) -> Iterator[str]:
    """Yield a sentence per difference between environments in fleet.yaml and in the queue."""
    if not any(rule.lookup == ENVIRONMENTS for rule in fleet.derive):
        return
    own = fleet.lookups.get(ENVIRONMENTS, {})
    for value in sorted(own.keys() & context.environments.keys()):
        theirs = context.environments[value]
        for key in sorted(own[value].keys() & theirs.keys()):
            if own[value][key] != theirs[key]:
                yield (
                    f"{key} of environment {value} is {theirs[key]} in the queue but "
                    f"{own[value][key]} in lookups.{ENVIRONMENTS}; requests ask for both: "
                    "correct one of them"
                )
