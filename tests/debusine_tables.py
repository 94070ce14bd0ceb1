"""This module fills Debusine's tables in a real PostgreSQL, as far as they decide what runs."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from fleet.tagrules.debusine import WorkerRow
from fleet.tagrules.sql import Sql
from tests.process import ROOT

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


@dataclass
class Tables:
    """An empty database with Debusine's tables."""

    connection: "psycopg.Connection[tuple[Any, ...]]"
    scopes: dict[str, int] = field(default_factory=dict)

    def create(self) -> None:
        """Make the tables anew."""
        self.scopes = {}
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
        """Insert requests, each in the only workspace of its scope."""
        kept = list(rows)
        for scope in sorted({row.scope for row in kept} - set(self.scopes)):
            self.scopes[scope] = number = len(self.scopes) + 1
            self.connection.execute("INSERT INTO db_scope VALUES (%s, %s)", (number, scope))
            self.connection.execute(
                "INSERT INTO db_workspace VALUES (%s, 'builds', %s)", (number, number)
            )
        with (
            self.connection.cursor() as cursor,
            cursor.copy(
                "COPY db_workrequest (id, workspace_id, created_at, status, worker_id, task_type,"
                " task_name, priority_base, priority_adjustment, scheduler_tags_provided,"
                " scheduler_tags_required) FROM STDIN"
            ) as copy,
        ):
            for row in kept:
                copy.write_row(
                    (
                        *(row.id, self.scopes[row.scope], "2026-11-21 00:00+00", row.status),
                        *(row.worker, row.task_type, row.task, row.priority, 0),
                        *(list(row.provided), list(row.required)),
                    )
                )

    def ask(self, statement: Sql) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        # The text is a constant of the program; nothing but placeholders comes from elsewhere.
        return self.connection.execute(statement.text.encode(), statement.values).fetchall()
