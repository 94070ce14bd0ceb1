"""What a Resalloc's database tells, and that nothing is written into it."""

from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from fleet.errors import SourceUnreachable
from fleet.migrate.shadow import ResallocDatabase, Seen, SeenTicket
from tests.rigs import postgres
from tests.rigs.resalloc_tables import Resalloc


def test_open_tickets_and_machines_that_have_not_ended_are_read(tmp_path: Path) -> None:
    resalloc = Resalloc(tmp_path / "resalloc.db")
    resalloc.ticket(1, "big", "arch_x86_64", sandbox="ada/x--ben")
    resalloc.ticket(2)
    resalloc.ticket(3, "big")
    resalloc.close(3)
    resalloc.machine(10, "usual", ticket=1)
    resalloc.machine(11, "usual", "STARTING")
    resalloc.machine(12, "usual", "ENDED")

    assert ResallocDatabase(resalloc.url).read() == Seen(
        tickets=(
            SeenTicket(id=1, tags=("arch_x86_64", "big"), sandbox="ada/x--ben", waits=False),
            SeenTicket(id=2, tags=(), waits=True),
        ),
        machines={"usual": 2},
    )


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "none.db"

    with pytest.raises(SourceUnreachable, match="db_url"):
        ResallocDatabase(f"sqlite:///{file}").read()

    assert not file.exists()


def test_a_database_of_something_else_is_no_empty_resalloc(tmp_path: Path) -> None:
    (tmp_path / "other.db").touch()

    with pytest.raises(SourceUnreachable, match="no such table: tickets"):
        ResallocDatabase(f"sqlite:///{tmp_path}/other.db").read()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "secret",
        "sqlite://",
        "mysql://ada:secret@host/r",
        "postgresql://ada:secret/r",
        "postgresql://ada:1@secret@host/r",
    ],
)
def test_what_is_no_address_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(SourceUnreachable, match="db_url") as raised:
        ResallocDatabase(url)

    assert "secret" not in str(raised.value)


def test_a_postgresql_is_read_alike_and_never_written(postgres_server: str) -> None:
    tables = """
        CREATE TABLE tickets (id int, resource_id int, state varchar, sandbox varchar);
        CREATE TABLE ticket_tags (id varchar, ticket_id int);
        CREATE TABLE resources (id int, pool varchar, state varchar);
        INSERT INTO tickets VALUES (2, NULL, 'OPEN', NULL), (1, 10, 'OPEN', 'ada/x--ben');
        INSERT INTO ticket_tags VALUES ('big', 1), ('arch_x86_64', 1);
        INSERT INTO resources VALUES (10, 'usual', 'UP'), (11, 'usual', 'ENDED');
    """
    with postgres.database(postgres_server) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(tables)
        database = ResallocDatabase(url)
        with (
            database.engine.connect() as reader,
            pytest.raises(sa.exc.InternalError, match="read-only transaction"),
        ):
            reader.execute(sa.text("DELETE FROM tickets"))

        seen = database.read()

    assert [(ticket.id, ticket.tags, ticket.waits) for ticket in seen.tickets] == [
        (1, ("arch_x86_64", "big"), False),
        (2, (), True),
    ]
    assert seen.machines == {"usual": 1}
