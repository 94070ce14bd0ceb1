"""Fill Debusine's tables in a real PostgreSQL, as far as they decide what runs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from contrib.debusine.sql import Sql
from fleet.tagrules.debusine import WorkerRow
from tests.rigs.process import ROOT

SCHEMA = ROOT / "tests" / "fixtures" / "debusine-0.16.2" / "schema.sql"


@dataclass(frozen=True)
class RequestRow:
    """A row of db_workrequest."""

    id: int
    required: tuple[str, ...] = ()
    provided: tuple[str, ...] = ()
    task: str = "noop"
    scope: str = "debian"
    status: str = "pending"
    worker: int | None = None
    priority: int = 0
    task_type: str = "Worker"
    workspace: str = "builds"
    created_at: str = "2026-11-21 00:00+00"
    started_at: str | None = None
    completed_at: str | None = None
    result: str = ""
    submitter: int = 1
    data: Mapping[str, Any] = field(default_factory=dict)
    dynamic: Mapping[str, Any] | None = None
    output: Mapping[str, Any] | None = None


@dataclass
class Tables:
    """An empty database with Debusine's tables."""

    connection: "psycopg.Connection[tuple[Any, ...]]"
    scopes: dict[str, int] = field(default_factory=dict)
    workspaces: dict[tuple[str, str], int] = field(default_factory=dict)

    def create(self) -> None:
        """Make the tables anew."""
        self.scopes, self.workspaces = {}, {}
        self.connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        self.connection.execute(SCHEMA.read_bytes())

    def add_workers(self, rows: Mapping[int, WorkerRow], names: Mapping[int, str]) -> None:
        """Insert workers by id."""
        with self.connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO db_worker VALUES (%s, %s, now(), %s::jsonb, %s::jsonb, %s, 1)",
                [
                    (
                        number,
                        names[number],
                        json.dumps(row.static_metadata),
                        json.dumps(row.dynamic_metadata),
                        row.worker_type,
                    )
                    for number, row in rows.items()
                ],
            )

    def add_pool(self, number: int, name: str, row: Mapping[str, Any]) -> None:
        """Insert a worker pool of the provider account 7."""
        columns = ("architectures", "specifications", "limits", "static_metadata")
        self.connection.execute(
            "INSERT INTO db_workerpool VALUES (%s, %s, %s, %s::jsonb, %s::jsonb, %s, %s::jsonb, 7,"
            " %s::jsonb)",
            (
                *(number, name, row.get("enabled", True)),
                *(json.dumps(row.get(column, {})) for column in columns[:2]),
                row.get("instance_wide", False),
                *(json.dumps(row.get(column, {})) for column in columns[2:]),
            ),
        )

    def add_requests(self, rows: Iterable[RequestRow]) -> None:
        """Insert requests, and the scopes and workspaces they are in."""
        kept = list(rows)
        for scope, workspace in sorted({(row.scope, row.workspace) for row in kept}):
            self._add_workspace(scope, workspace)
        columns = (
            "id, workspace_id, created_at, status, worker_id, task_type, task_name, priority_base,"
            " priority_adjustment, scheduler_tags_provided, scheduler_tags_required, started_at,"
            " completed_at, result, created_by_id, task_data, dynamic_task_data, output_data"
        )
        with (
            self.connection.cursor() as cursor,
            cursor.copy(f"COPY db_workrequest ({columns}) FROM STDIN") as copy,
        ):
            for row in kept:
                place = self.workspaces[row.scope, row.workspace]
                copy.write_row(
                    (
                        *(row.id, place, row.created_at, row.status),
                        *(row.worker, row.task_type, row.task, row.priority, 0),
                        *(list(row.provided), list(row.required), row.started_at),
                        *(row.completed_at, row.result, row.submitter, json.dumps(row.data)),
                        *(each if each is None else json.dumps(each) for each in _told(row)),
                    )
                )

    def _add_workspace(self, scope: str, workspace: str) -> None:
        if scope not in self.scopes:
            self.scopes[scope] = len(self.scopes) + 1
            self.connection.execute(
                "INSERT INTO db_scope VALUES (%s, %s)", (self.scopes[scope], scope)
            )
        if (scope, workspace) not in self.workspaces:
            self.workspaces[scope, workspace] = number = len(self.workspaces) + 1
            self.connection.execute(
                "INSERT INTO db_workspace VALUES (%s, %s, %s)",
                (number, workspace, self.scopes[scope]),
            )

    def ask(self, statement: Sql) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        # The text is a constant of the program; nothing but placeholders comes from elsewhere.
        return self.connection.execute(statement.text.encode(), statement.values).fetchall()


def _told(row: RequestRow) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    return row.dynamic, row.output
