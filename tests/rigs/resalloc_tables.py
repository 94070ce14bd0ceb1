"""Make the database of a Resalloc, as far as fleet reads it."""

import sqlite3
from pathlib import Path

from fleet.state.storage import sqlite_url

_TABLES = """
CREATE TABLE tickets (id INTEGER PRIMARY KEY, resource_id INT, state TEXT, tid TEXT, sandbox TEXT);
CREATE TABLE ticket_tags (id TEXT, ticket_id INT, PRIMARY KEY (id, ticket_id));
CREATE TABLE resources (id INTEGER PRIMARY KEY, name TEXT, pool TEXT, state TEXT, ticket_id INT);
"""


class Resalloc:
    """The database of a Resalloc in a file."""

    def __init__(self, file: Path) -> None:
        self.url = sqlite_url(file)
        self._file = file
        self._do(_TABLES)

    def ticket(self, number: int, *tags: str, sandbox: str | None = None) -> None:
        """Add an open ticket that waits."""
        self._do("INSERT INTO tickets VALUES (?, NULL, 'OPEN', NULL, ?)", number, sandbox)
        for tag in tags:
            self._do("INSERT INTO ticket_tags VALUES (?, ?)", tag, number)

    def machine(
        self, number: int, pool: str, state: str = "UP", ticket: int | None = None
    ) -> None:
        """Add a machine, of a ticket if it has one."""
        self._do("INSERT INTO resources VALUES (?, '', ?, ?, ?)", number, pool, state, ticket)
        self._do("UPDATE tickets SET resource_id = ? WHERE id = ?", number, ticket)

    def close(self, number: int) -> None:
        """Close a ticket."""
        self._do("UPDATE tickets SET state = 'CLOSED' WHERE id = ?", number)

    def _do(self, statement: str, *values: object) -> None:
        connection = sqlite3.connect(self._file)
        with connection:
            if values:
                connection.execute(statement, values)
            else:
                connection.executescript(statement)
        connection.close()
