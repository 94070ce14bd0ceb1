"""This module keeps the tries to make machines, within a transaction of the store."""

from collections.abc import Sequence
from datetime import timedelta

import sqlalchemy as sa

from fleet.facts import Attempt
from fleet.store.rows import rows_of
from fleet.store.tables import ATTEMPTS

_KEPT = timedelta(days=30)


def write_attempts(connection: sa.Connection, attempts: Sequence[Attempt]) -> None:
    """Write tries down, each in place of what was known of it, and drop what is long past.

    A store that an older fleet made gets its table here.
    """
    ATTEMPTS.create(connection, checkfirst=True)
    for attempt in attempts:
        row = attempt.model_dump(mode="json") | {"at": attempt.at.isoformat()}
        same = (ATTEMPTS.c.worker == row["worker"], ATTEMPTS.c.at == row["at"])
        connection.execute(sa.delete(ATTEMPTS).where(*same))
        connection.execute(sa.insert(ATTEMPTS), [row])
    latest = max(attempt.at for attempt in attempts)
    oldest = (latest - _KEPT).isoformat()
    connection.execute(sa.delete(ATTEMPTS).where(ATTEMPTS.c.at < oldest))


def rename_in_attempts(connection: sa.Connection, old: str, new: str) -> None:
    """Write every try down under a pool's new name; an older store has none yet."""
    if sa.inspect(connection).has_table(ATTEMPTS.name):
        renamed = sa.update(ATTEMPTS).where(ATTEMPTS.c.pool == old).values(pool=new)
        connection.execute(renamed)


def read_attempts(connection: sa.Connection, latest: int) -> tuple[Attempt, ...]:
    """Return the latest tries of each pool, type and market; an older store has none yet.

    Those that nobody heard the end of are all returned: what they made is told by them.
    """
    if not sa.inspect(connection).has_table(ATTEMPTS.name):
        return ()
    columns = ATTEMPTS.c
    place = sa.func.row_number().over(
        partition_by=(columns.pool, columns.type, columns.market),
        order_by=(columns.at.desc(), columns.worker),
    )
    numbered = sa.select(ATTEMPTS, place.label("place")).subquery()
    query = (
        sa.select(*(numbered.c[column.name] for column in columns))
        .where((numbered.c.place <= latest) | (numbered.c.result == "starting"))
        .order_by(numbered.c.at, numbered.c.worker)
    )
    rows = connection.execute(query).mappings()
    with rows_of(ATTEMPTS):
        return tuple(Attempt.model_validate(dict(row)) for row in rows)
