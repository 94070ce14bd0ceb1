"""This module reads the tickets and machines of a Resalloc from its database, read-only."""

from collections import defaultdict
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from fleet.errors import SourceUnreachable
from fleet.migrate.shadow import Seen, SeenTicket
from fleet.state.connecting import read_url

_TICKETS = sa.text(
    "SELECT t.id, t.sandbox, t.resource_id, g.id FROM tickets t"
    " LEFT JOIN ticket_tags g ON g.ticket_id = t.id WHERE t.state = 'OPEN' ORDER BY t.id, g.id"
)
_MACHINES = sa.text("SELECT pool, count(*) FROM resources WHERE state <> 'ENDED' GROUP BY pool")
_LIMITED = sa.text("SET LOCAL statement_timeout = '30s'")


class ResallocDatabase:
    """The database behind the `db_url` of a Resalloc, SQLite or PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        """Connects to read, and can do nothing else."""

    def read(self) -> Seen:
        """Return what is open and what has not ended; SourceUnreachable where nothing tells."""
        try:
            with self.engine.connect() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(_LIMITED)
                tickets = connection.execute(_TICKETS).all()
                machines = connection.execute(_MACHINES).all()
        except sa.exc.SQLAlchemyError as error:
            # The wrapper repeats the statement; `orig` is the driver's own sentence.
            because = str(getattr(error, "orig", None) or type(error).__name__).splitlines()[0]
            raise SourceUnreachable(
                f"Resalloc's database does not answer: {because}; compare it with `db_url` in "
                "Resalloc's server.yaml"
            ) from None
        return Seen(
            tickets=_tickets([tuple(row) for row in tickets]),
            machines={str(pool): int(count) for pool, count in machines},
        )


def _tickets(rows: list[tuple[int, str | None, int | None, str | None]]) -> tuple[SeenTicket, ...]:
    tags: defaultdict[int, list[str]] = defaultdict(list)
    for number, _, _, tag in rows:
        tags[number] += [] if tag is None else [tag]
    told = {number: (sandbox, machine) for number, sandbox, machine, _ in rows}
    return tuple(
        SeenTicket(
            id=number, tags=tuple(tags[number]), sandbox=sandbox or "", waits=machine is None
        )
        for number, (sandbox, machine) in told.items()
    )


def _engine(text: str) -> sa.Engine:
    """Return what connects to read; no text of an error repeats the URL."""
    url = read_url(text)
    if url is None:
        raise SourceUnreachable(_NO_URL)
    pool = sa.NullPool
    if url.get_backend_name() == "postgresql":
        # Nothing is set at the start or for the session: a pooler may stand between.
        about = {"connect_timeout": 10, "prepare_threshold": None}
        url = url.set(drivername="postgresql+psycopg")
        try:
            engine = sa.create_engine(url, poolclass=pool, connect_args=about)
            return engine.execution_options(postgresql_readonly=True)
        except ModuleNotFoundError as error:
            raise SourceUnreachable(
                f"Resalloc's database needs {error.name}, which is not installed: install fleet "
                "with its extra `postgres`"
            ) from error
    if url.get_backend_name() == "sqlite" and url.database:
        file = f"file:{quote(str(Path(url.database).absolute()))}"
        options = {"mode": "ro", "uri": "true"}
        return sa.create_engine(
            sa.URL.create("sqlite", database=file, query=options), poolclass=pool
        )
    raise SourceUnreachable(_NO_URL)


_NO_URL = (
    "this is no address of Resalloc's database; write its `db_url`, sqlite:////PATH or "
    "postgresql://USER:PASSWORD@HOST/NAME, @ in a password as %40"
)
