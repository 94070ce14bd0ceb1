"""This module holds a fleet's lock in PostgreSQL, and numbers its holders.

The lock is an advisory one of a transaction that lasts as long as its run: it ends with the
connection, whatever ends that, and a pooler such as pgbouncer leaves a transaction its connection.
A run that has lost its connection does not know; each of its transactions compares the number.
"""

from contextlib import suppress

import sqlalchemy as sa

from fleet.store.tables import ABOUT

FENCE = "fence"
"""The key under which the number of the latest lock stands."""
# A server gives up what rests, and what lasts; and it learns late of a computer that is gone.
_SETTLE = sa.text("""\
SELECT set_config(name, value, true)
  FROM pg_settings JOIN (VALUES
       ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'),
       ('tcp_keepalives_idle', '20'), ('tcp_keepalives_interval', '10'),
       ('tcp_keepalives_count', '3')) AS wanted (name, value) USING (name)""")
_TAKE = sa.text(
    "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || :fleet, 0))"
)


class LockingConnection:
    """A connection of its own to PostgreSQL, for a lock."""

    def __init__(self, url: sa.URL) -> None:
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)
        self._connection: sa.Connection | None = None

    def take(self, fleet: str) -> bool:
        """Take a fleet's lock; False where another connection holds it."""
        self._connection = self._engine.connect()
        self._connection.execute(_SETTLE)
        return bool(self._connection.execute(_TAKE, {"fleet": f" {fleet}"}).scalar())

    def close(self) -> None:
        """Give it up."""
        if self._connection is not None:
            with suppress(sa.exc.SQLAlchemyError):  # it is gone, and the lock with it
                self._connection.close()


def next_fence(connection: sa.Connection) -> int:
    """Return the number of a lock that was just taken: no later one has it."""
    same = ABOUT.c.key == FENCE
    number = int(connection.execute(sa.select(ABOUT.c.value).where(same)).scalar() or 0) + 1
    if number == 1:
        connection.execute(sa.insert(ABOUT), [{"key": FENCE, "value": "1"}])
    else:
        connection.execute(sa.update(ABOUT).where(same).values(value=str(number)))
    return number


def is_current(connection: sa.Connection, number: int) -> bool:
    """Say whether nobody took the lock since; nobody can before this transaction has ended."""
    latest = sa.select(ABOUT.c.value).where(ABOUT.c.key == FENCE).with_for_update(read=True)
    return connection.execute(latest).scalar() == str(number)
