"""This module keeps how far approvals are used up: each machine once."""

from collections.abc import Collection, Mapping

import sqlalchemy as sa

from fleet.store.tables import SPENT


def read_spent(connection: sa.Connection) -> Mapping[str, int]:
    """Return the digest of each approval that was used, to how many machines it let pass."""
    # A store made before there were approvals has no table of them: none was used.
    if not sa.inspect(connection).has_table(SPENT.name):
        return {}
    query = sa.select(SPENT.c.approval, sa.func.count()).group_by(SPENT.c.approval)
    return {str(digest): int(count) for digest, count in connection.execute(query)}


def write_spent(connection: sa.Connection, approval: str, machines: Collection[str]) -> None:
    """Use an approval for these machines; one that it was used for already counts once."""
    SPENT.create(connection, checkfirst=True)
    ours = (SPENT.c.approval == approval, SPENT.c.machine.in_(machines))
    known = set(connection.execute(sa.select(SPENT.c.machine).where(*ours)).scalars())
    rows = [{"approval": approval, "machine": name} for name in machines if name not in known]
    if rows:
        connection.execute(sa.insert(SPENT), rows)


def take_back(connection: sa.Connection, approval: str, machines: Collection[str]) -> None:
    """Take back what an approval was used for where it was not done after all."""
    ours = (SPENT.c.approval == approval, SPENT.c.machine.in_(machines))
    connection.execute(sa.delete(SPENT).where(*ours))
