"""The table of what is counted month by month."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

import sqlalchemy as sa

from fleet.model.months import Tally
from fleet.model.values import in_utc
from fleet.state.database import ABOUT, MONTHS, rows_of

_WAITING = "waiting"
_SUMS = ("count", "seconds", "nanos")


def add_tallies(connection: sa.Connection, tallies: Sequence[Tally]) -> None:
    """Add to what was counted; a store that an older fleet made gets its table here."""
    if tallies:
        MONTHS.create(connection, checkfirst=True)
    for tally in tallies:
        row = tally.model_dump()
        key = [MONTHS.c[name] == row[name] for name in ("month", "kind", "name")]
        added = {name: MONTHS.c[name] + row[name] for name in _SUMS}
        if not connection.execute(sa.update(MONTHS).where(*key).values(added)).rowcount:
            connection.execute(sa.insert(MONTHS), [row])


def write_waiting(connection: sa.Connection, waiting: Mapping[str, datetime]) -> None:
    """Write down which requests wait, in place of those of the run before."""
    since = json.dumps({key: at.isoformat() for key, at in waiting.items()})
    connection.execute(sa.delete(ABOUT).where(ABOUT.c.key == _WAITING))
    connection.execute(sa.insert(ABOUT), [{"key": _WAITING, "value": since}])


def read_tallies(connection: sa.Connection, month: str) -> tuple[Tally, ...]:
    """Return what was counted in a month; an older store has nothing yet."""
    if not sa.inspect(connection).has_table(MONTHS.name):
        return ()
    columns = MONTHS.c
    query = sa.select(MONTHS).where(columns.month == month).order_by(columns.kind, columns.name)
    with rows_of(MONTHS):
        return tuple(
            Tally.model_validate(dict(row)) for row in connection.execute(query).mappings()
        )


def read_waiting(connection: sa.Connection) -> dict[str, datetime]:
    """Return the requests that waited in the last run that counted, to since when."""
    query = sa.select(ABOUT.c.value).where(ABOUT.c.key == _WAITING)
    text = connection.execute(query).scalar()
    if not text:
        return {}
    with rows_of(ABOUT):
        return {key: in_utc(datetime.fromisoformat(at)) for key, at in json.loads(text).items()}
