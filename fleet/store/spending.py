"""This module keeps how far approvals are used up: each machine once."""

from collections import defaultdict
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from fleet.store.tables import SPENT


def read_spent(connection: sa.Connection) -> Mapping[str, tuple[str, ...]]:
    """Return the digest of each approval that was used, to the machines it was used for."""
    # A store made before there were approvals has no table of them: none was used.
    if not sa.inspect(connection).has_table(SPENT.name):
        return {}
    found: defaultdict[str, list[str]] = defaultdict(list)
    query = sa.select(SPENT.c.approval, SPENT.c.machine).order_by(SPENT.c.machine)
    for approval, machine in connection.execute(query):
        found[approval].append(machine)
    return {approval: tuple(machines) for approval, machines in found.items()}


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
