"""The table of the change log: append and read entries, and remove expired entries."""

import json
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from fleet.model.log import Chain, Link, LogEntry, Mark, count_expired, linked
from fleet.model.values import in_utc
from fleet.state.database import ABOUT, LOG, reading_rows

_ENDS_KEY = "log"
"""Key of the first and last position in the hash chain of the log, as JSON."""
# This update waits for the transactions of other writers, so that the chain stays complete.
_WAIT_FOR_WRITERS = sa.text(
    "INSERT INTO fleet_about (key, value) VALUES ('log', '') ON CONFLICT DO NOTHING"
)
_IS_ENDS_KEY = ABOUT.c.key == _ENDS_KEY


def append_entries(connection: sa.Connection, entries: Sequence[LogEntry]) -> Mark:
    """Append entries, remove expired entries, and return the position of the last entry."""
    anchor, head = lock_log(connection)
    head = _skip_foreign_rows(connection, head)
    for entry in entries:
        link = linked(head, entry)
        row = {"place": link.number, "at": link.at, "entry": link.text, "digest": link.digest}
        connection.execute(sa.insert(LOG), [row])
        head = link.mark
    anchor = _trim(connection, anchor)
    ends = json.dumps({"anchor": anchor, "head": head})
    connection.execute(sa.update(ABOUT).where(_IS_ENDS_KEY).values(value=ends))
    return head


def lock_log(connection: sa.Connection) -> tuple[Mark, Mark]:
    """Wait for other writers, then return the positions before the first and of the last entry.

    Later reads in this transaction include the entries of those writers.
    """
    connection.execute(_WAIT_FOR_WRITERS)
    return _read_ends(connection)


def _skip_foreign_rows(connection: sa.Connection, head: Mark) -> Mark:
    """Return the position after rows that other programs added. `verify` reports such rows."""
    query = sa.select(LOG.c.place, LOG.c.digest).order_by(LOG.c.place.desc()).limit(1)
    last = connection.execute(query).first()
    if last is None or last.place <= head.number:
        return head
    return Mark(last.place, head.digest or last.digest)


def _trim(connection: sa.Connection, anchor: Mark) -> Mark:
    """Remove expired entries at the start of the log; return the position of the last one."""
    place, at = LOG.c.place, LOG.c.at
    latest = connection.execute(sa.select(at).order_by(place.desc()).limit(2)).scalars().all()
    first = connection.execute(sa.select(at).order_by(place).limit(_MAX_TRIMMED)).scalars().all()
    with reading_rows(LOG):
        times = [*first, *reversed(latest)]
        gone = count_expired([in_utc(datetime.fromisoformat(each)) for each in times])
    if not gone:
        return anchor
    ours = sa.select(place, LOG.c.digest).order_by(place).limit(1).offset(gone - 1)
    row = connection.execute(ours).one()
    connection.execute(sa.delete(LOG).where(place <= row.place))
    return Mark(row.place, row.digest)


_MAX_TRIMMED = 1000
"""Maximum number of entries that one append removes."""


def read_entries(connection: sa.Connection, since: datetime | None) -> tuple[LogEntry, ...]:
    """Return the log entries since a time; all entries if the time is None."""
    query = sa.select(LOG.c.at, LOG.c.entry).order_by(LOG.c.place)
    if since is not None:
        query = query.where(LOG.c.at >= since.isoformat())
    with reading_rows(LOG):
        return tuple(
            LogEntry.model_validate({"at": row.at, **json.loads(row.entry)})
            for row in connection.execute(query)
        )


def read_chain(connection: sa.Connection) -> Chain:
    """Return the log with its chained digests, as stored."""
    anchor, head = _read_ends(connection)
    columns = (LOG.c.place, LOG.c.at, LOG.c.entry, LOG.c.digest)
    rows = connection.execute(sa.select(*columns).order_by(LOG.c.place))
    return Chain(anchor, tuple(Link(*row) for row in rows), head)


def _read_ends(connection: sa.Connection) -> tuple[Mark, Mark]:
    """Return the positions before the first and of the last entry, locked in this transaction."""
    query = sa.select(ABOUT.c.value).where(_IS_ENDS_KEY)
    if connection.dialect.name == "postgresql":
        query = query.with_for_update()
    text = connection.execute(query).scalar()
    if not text:
        return Mark(), Mark()
    with reading_rows(ABOUT):
        ends = json.loads(text)
        return Mark(*ends["anchor"]), Mark(*ends["head"])
