"""This module says which tags Debusine counts of a worker, and which tasks a worker takes.

Facts of Debusine 0.16: a worker's tags are those it reports (but for classes and types, which it
may not give itself), those its administrator wrote (but for types), and one for its type. What
it requires of requests only the administrator can write. An allow-list of tasks, where there is
one, puts the deny-list out of use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
