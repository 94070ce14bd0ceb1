"""Parse a page of Debusine's work requests.

Only the fields in TASK_FIELDS and in rules of `derive` are kept of the task data, and only plain
values and lists of plain values.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from fleet.errors import SourceUnreachable
from fleet.model.facts import Request
from fleet.model.values import (
    MAX_ID,
    MOST,
    BelievedMoment,
    Id,
    Line,
    LineTags,
)
from fleet.queues.http import QueueReply
from fleet.tagrules.derive import ENVIRONMENT_KEYS, at_path

TASK_FIELDS = (
    "host_architecture",
    "build_architecture",
    "environment",
    "environment_id",
    "distribution",
    "build_components",
)
ENVIRONMENT_FIELDS = ("architecture", "codename", "vendor", "variant")
TIMED_TASK = "autopkgtest"
"""The only task of workers with a time limit in its requests."""
LONGEST = 10**9
"""Maximum deadline in seconds. A longer deadline is reduced to this limit."""
_TIMEOUT = "timeout.global"
_ENVIRONMENT = ("task_input_fields", "environment")
_VALUE_LENGTH = 500
OVERSIZED_ENVIRONMENT = "(too large, or no id)"
"""Value of an omitted environment. Without a value, the request would fit any architecture."""
_LIST_LENGTH = 1_000
GROUP_TAG = "task:group:"
PACKAGE_TAG = "task:source-package:"


def bounded_priority(priority: int) -> int:
    """Limit a priority to the range of requests. The sum of two columns may exceed the range."""
    return min(max(priority, -MOST), MOST)


Priority = Annotated[int, Field(ge=-(2**63), le=MAX_ID)]
Link = Annotated[str, StringConstraints(max_length=10_000)]


def _none_if_unreadable(value: object, read: ValidatorFunctionWrapHandler) -> int | None:
    try:
        worker: int | None = read(value)
    except ValidationError:
        return None
    return worker


class ListedRow(QueueReply):
    """The fields of a work request that suffice to count the request, even an unreadable one."""

    id: Annotated[int, Field(ge=-MAX_ID, le=MAX_ID)] | Line
    task_type: Line
    status: Line
    scope: Line
    worker: Annotated[Id | None, WrapValidator(_none_if_unreadable)]
    """Worker of the request. None also if unreadable, so that the request counts as waiting."""
    is_unreadable_because: Line = ""
    """Reason why the request is unreadable. This is not a key of Debusine's reply."""


class WorkRequestRow(ListedRow):
    """The fields of a work request that fleet reads."""

    id: Id
    worker: Id | None
    task_name: Line
    workspace: Line
    created_at: BelievedMoment
    created_by: Id | None
    priority_base: Priority
    priority_adjustment: Priority
    scheduler_tags_required: LineTags
    scheduler_tags_provided: LineTags
    task_data: dict[str, Any]
    dynamic_task_data: dict[str, Any] | None = None

    @property
    def priority(self) -> int:
        """Return the priority by which Debusine orders the request."""
        return bounded_priority(self.priority_base + self.priority_adjustment)

    def to_request(self, paths: Iterable[str] = ()) -> Request:
        """Convert the row to a request, whose waiting time starts at its creation.

        `paths` are paths in its task data that are kept in addition to TASK_FIELDS.
        """
        fields = (self.dynamic_task_data or {}) | self.task_data
        limit = at_path(self.task_data, _TIMEOUT) if self.task_name == TIMED_TASK else None
        return Request(
            id=str(self.id),
            task=self.task_name,
            required=self.scheduler_tags_required,
            provided=self.scheduler_tags_provided,
            priority=self.priority,
            pending_since=self.created_at,
            requester=None if self.created_by is None else str(self.created_by),
            groups=groups_of(self.scheduler_tags_provided),
            scope=self.scope,
            workspace=self.workspace,
            package=package_of(self.scheduler_tags_provided),
            task_data=keep({path: at_path(fields, path) for path in {*TASK_FIELDS, *paths}}),
            deadline_seconds=min(limit, LONGEST) if type(limit) is int and limit > 0 else None,
        )

    def environment(self) -> tuple[str, dict[str, str]] | None:
        """Return id and record of the environment; None if the server has not looked it up."""
        return environment_of(self.dynamic_task_data or {})


class ListPage(QueueReply):
    """One page of a list of work requests."""

    next: Link | None = Field(description="Address of the next page.")
    previous: Link | None = Field(description="Address of the previous page.")
    results: Annotated[tuple[WorkRequestRow, ...], Field(max_length=1_000)]
    counted: tuple[ListedRow, ...] = ()
    """Unreadable rows. They are not in `results`."""

    @property
    def rows(self) -> tuple[ListedRow, ...]:
        """Return all rows of the page, including unreadable rows."""
        return (*self.results, *self.counted)

    def cursor(self) -> str | None:
        """Return the cursor of the next page; None on the last page."""
        return _cursor(self.next)

    def cursor_back(self) -> str | None:
        """Return the cursor of the previous page; None on the first page."""
        return _cursor(self.previous)


def _cursor(link: str | None) -> str | None:
    """Return the cursor in a link. Ignore the rest, which may name another host."""
    if link is None:
        return None
    try:
        found = parse_qs(urlsplit(link).query).get("cursor", [])
    except ValueError:
        found = []
    if len(found) != 1:
        raise SourceUnreachable(
            "the server's link to its next page has no cursor, so the list cannot be read to its "
            "end; is the server's version supported (0.16)?"
        )
    return found[0]


def package_of(provided: Iterable[str]) -> str | None:
    """Return the source package in a request's tags; None if there are several or none."""
    packages = _after(PACKAGE_TAG, provided)
    return packages[0] if len(packages) == 1 else None


def groups_of(provided: Iterable[str]) -> tuple[str, ...]:
    """Return the names of groups in a request's tags."""
    return _after(GROUP_TAG, provided)


def environment_of(data: dict[str, Any]) -> tuple[str, dict[str, str]] | None:
    """Return id and record of an environment; None if the server has not looked it up."""
    number, field = data.get("environment_id"), _within(data, *_ENVIRONMENT)
    record = _within(field, "data")
    if not isinstance(number, int) or _within(field, "artifact_id") != number:
        return None
    kept = {name: _within(record, name) for name in ENVIRONMENT_FIELDS}
    return str(number), {
        name: value
        for name, value in kept.items()
        if isinstance(value, str) and 0 < len(value) <= _VALUE_LENGTH
    }


def list_environments(
    found: Iterable[tuple[str, dict[str, str]] | None],
) -> dict[str, dict[str, str]]:
    """Map ids to environments that the server has looked up. Omit ids with contradictory data."""
    records: dict[str, list[dict[str, str]]] = {}
    for number, record in filter(None, found):
        if record not in records.setdefault(number, []):
            records[number].append(record)
    return {number: alike[0] for number, alike in records.items() if len(alike) == 1}


_LAST = datetime.max.replace(tzinfo=UTC)


def order(request: Request) -> tuple[int, datetime, int]:
    """Return the sort key of Debusine's scheduler: highest priority first, then oldest."""
    return (-request.priority, request.pending_since or _LAST, int(request.id))


def keep(found: Mapping[str, object]) -> dict[str, Any]:
    """Return the values at paths in task data as nested maps, without values too large to keep."""
    kept: dict[str, Any] = {}
    for path, value in sorted(found.items()):
        *above, name = path.split(".")
        is_absurd = name in ENVIRONMENT_KEYS and value is not None and not _is_shown(value)
        if at_path(kept, path) is None and (is_absurd or _is_shown(value)):
            place = kept
            # An item of a list is kept under its index, since a path may lead to an item.
            for step in above:
                place = place.setdefault(step, {})
            place[name] = OVERSIZED_ENVIRONMENT if is_absurd else value
    return kept


def _after(prefix: str, tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix))


def _within(value: object, *keys: str) -> object:
    """Return the value under these nested keys; None if it does not exist."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_shown(value: object) -> bool:
    if isinstance(value, list):
        return len(value) <= _LIST_LENGTH and all(map(_is_plain, value))
    return _is_plain(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _VALUE_LENGTH
    return isinstance(value, int) and abs(value) <= MAX_ID
