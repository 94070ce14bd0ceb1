"""The requests of the recorded Debusine as rows of its table."""

import json
from typing import Any

from tests.rigs.debusine_tables import RequestRow
from tests.rigs.replay import PENDING, read_exchange


def recorded_requests() -> list[RequestRow]:
    """Return all 32 requests; of those that had been assigned, to whom."""
    names = (*PENDING, "wr-list-running")
    rows = [
        row for name in names for row in json.loads(read_exchange(name).answer.body)["results"]
    ]
    return sorted(map(_request, rows), key=lambda row: row.id)


def _request(row: dict[str, Any]) -> RequestRow:
    return RequestRow(
        id=row["id"],
        required=tuple(row["scheduler_tags_required"]),
        provided=tuple(row["scheduler_tags_provided"]),
        task=row["task_name"],
        scope=row["scope"],
        workspace=row["workspace"],
        status=row["status"],
        worker=row["worker"],
        priority=row["priority_base"] + row["priority_adjustment"],
        task_type=row["task_type"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
        submitter=row["created_by"],
        data=row["task_data"],
        dynamic=row["dynamic_task_data"],
    )
