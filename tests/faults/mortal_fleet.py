"""Fleet, killed with all that it started right before or after one of its commits.

`main` is run as a program with FILE NUMBER VERB… (`Warm.run`). Each commit of something written
makes two moments, in the store and in a Debusine's database alike; FILE gets their names. At the
moment of this number all is killed; 0: at none.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.interfaces import DBAPIConnection

import fleet.__main__
from tests.ports.engines import family_of

WRITES = ("INSERT", "UPDATE", "DELETE")


class Moments:
    """Counts what is committed, and kills at one of its moments."""

    def __init__(self, file: Path, last: int) -> None:
        self._file = file
        self._last = last
        self._count = 0
        self._written: dict[int, list[str]] = {}

    def hear(self, connection: sa.Connection, statement: str) -> None:
        """Take a statement that is about to be run."""
        words = statement.split()
        if words and words[0].upper() in WRITES:
            table = words[2] if words[0].upper() != "UPDATE" else words[1]
            name = f"{words[0].lower()} {table.partition('(')[0]}"
            held = id(connection.connection.dbapi_connection)
            self._written.setdefault(held, []).append(name)

    def commit(self, connection: DBAPIConnection) -> None:
        """Commit, as a dialect does."""
        inner = getattr(connection, "dbapi_connection", connection)
        written = ", ".join(dict.fromkeys(self._written.pop(id(inner), ())))
        if written:
            self._pass(f"before {written}")
        connection.commit()
        if written:
            self._pass(f"after {written}")

    def _pass(self, moment: str) -> None:
        self._count += 1
        with self._file.open("a", encoding="utf-8") as file:
            file.write(f"{moment}\n")
        if self._count == self._last:
            for each in reversed(family_of(os.getpid())):
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(each, signal.SIGKILL)


def main() -> None:
    """Run the program, and kill it."""
    moments = Moments(Path(sys.argv[1]), int(sys.argv[2]))
    sa.event.listen(
        sa.Engine,
        "before_cursor_execute",
        lambda connection, _cursor, statement, *_: moments.hear(connection, statement),
    )
    DefaultDialect.do_commit = moments.commit  # type: ignore[method-assign, assignment] # the one place that every commit passes
    sys.argv = ["fleet", *sys.argv[3:]]
    fleet.__main__.main()


if __name__ == "__main__":
    main()
