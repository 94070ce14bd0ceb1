"""This module confirms an empty list by what Debusine tells anyone, without a token.

An empty list proves nothing: Debusine answers 200 with no rows to a token whose user lacks the
role viewer, to a missing scope header and to a task type in lower case. `service-status` counts
the pending work of the whole server; `open-metrics` counts it by scope.
"""

import re
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from fleet.errors import SourceUnreachable
from fleet.web.reader import Reply

_SAMPLE = re.compile(r"work_requests\{(?P<labels>[^\n]*)\} (?P<value>[0-9.eE+]+)$", re.MULTILINE)
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


class Ask(Protocol):
    """Asks the server for one path, without a token."""

    def __call__(self, path: str) -> Reply:
        """Return the answer, whose status is 200."""


class _Count(BaseModel):
    model_config = ConfigDict(strict=True)
    pending: int


class _Tasks(BaseModel):
    Worker: _Count


class ServiceStatus(BaseModel):
    """The part of service-status that counts work."""

    tasks: _Tasks


def confirm_empty(scopes: tuple[str, ...], *, seen: int, ask: Ask) -> None:
    """Return when these scopes are empty indeed; raises SourceUnreachable when that is doubtful.

    `seen` counts the rows of every scope that was read, those with a worker included, as the
    server counts them. What other scopes hold explains a difference; only `open-metrics` tells
    whether it does.
    """
    status = ask("/api/1.0/service-status/").parse(ServiceStatus)
    if status.tasks.Worker.pending <= seen:
        return
    for scope in scopes:
        pending = _pending_by_metrics(scope, ask)
        if pending == 0:
            continue
        count = "an unknown number" if pending is None else f"{pending:g}"
        raise SourceUnreachable(
            f"scope {scope} was listed as empty, but the server has "
            f"{status.tasks.Worker.pending} pending requests for workers, {count} of them in that "
            "scope. Debusine answers with an empty list, not an error, to a token whose user may "
            f"not look: give that user the role viewer on each workspace of scope {scope}, and "
            "compare the scope's spelling with the server's"
        )


def _pending_by_metrics(scope: str, ask: Ask) -> float | None:
    """Return how much work a scope has waiting; None when the metrics cannot be read."""
    try:
        reply = ask("/api/1.0/open-metrics/")
    except SourceUnreachable:
        return None
    text = reply.body.decode("utf-8", errors="replace")
    pending: float | None = None
    for sample in _SAMPLE.finditer(text):
        labels = dict(_LABEL.findall(sample["labels"]))
        if labels.get("scope") != scope:
            continue
        # Debusine lists every scope it has, with zeros: a scope not named here is not empty.
        pending = pending or 0
        if labels.get("status") == "pending" and labels.get("task_type") == "Worker":
            pending += float(sample["value"])
    return pending
