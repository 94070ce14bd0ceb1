"""The log's table: appended to, read, and cut at its beginning."""

import json
from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from fleet.model.log import Chain, Link, LogEntry, Mark, count_expired, linked
from fleet.model.values import in_utc
from fleet.state.database import ABOUT, LOG, found_in, rows_of

_ENDS = "log"
"""The key under which the anchor and the head of the chain stand, as JSON."""
# It waits for any other writer, until that transaction ends: the chain stays whole.
_TAKE = sa.text("INSERT INTO fleet_about (key, value) VALUES ('log', '') ON CONFLICT DO NOTHING")
_SAME = ABOUT.c.key == _ENDS


def append_entries(connection: sa.Connection, entries: Sequence[LogEntry]) -> Mark:
    """Append entries and return the last one's place; what is too old goes from the beginning.

    A store that an older fleet made gets its table here.
    """
    anchor, head = take_log(connection)
    LOG.create(connection, checkfirst=True)
    head = _free_place(connection, head)
    for entry in entries:
        link = linked(head, entry)
        row = {"place": link.number, "at": link.at, "entry": link.text, "digest": link.digest}
        connection.execute(sa.insert(LOG), [row])
        head = link.mark
    anchor = _trim(connection, anchor)
    ends = json.dumps({"anchor": anchor, "head": head})
    connection.execute(sa.update(ABOUT).where(_SAME).values(value=ends))
    return head


def take_log(connection: sa.Connection) -> tuple[Mark, Mark]:
    """Wait for any other writer; return the anchor and the head, which then stay as they are.

    What is read after it in this transaction is what they wrote.
    """
    connection.execute(_TAKE)
    return _read_ends(connection)


def _free_place(connection: sa.Connection, head: Mark) -> Mark:
    """Return the head, behind rows that others have added: they are found, and stop no run."""
    query = sa.select(LOG.c.place, LOG.c.digest).order_by(LOG.c.place.desc()).limit(1)
    last = connection.execute(query).first()
    if last is None or last.place <= head.number:
        return head
    return Mark(last.place, head.digest or last.digest)


def _trim(connection: sa.Connection, anchor: Mark) -> Mark:
    """Remove what is too old from the beginning; return the last entry that was removed."""
    place, at = LOG.c.place, LOG.c.at
    latest = connection.execute(sa.select(at).order_by(place.desc()).limit(2)).scalars().all()
    first = connection.execute(sa.select(at).order_by(place).limit(_AT_ONCE)).scalars().all()
    with rows_of(LOG):
        times = [*first, *reversed(latest)]
        gone = count_expired([in_utc(datetime.fromisoformat(each)) for each in times])
    if not gone:
        return anchor
    ours = sa.select(place, LOG.c.digest).order_by(place).limit(1).offset(gone - 1)
    row = connection.execute(ours).one()
    connection.execute(sa.delete(LOG).where(place <= row.place))
    return Mark(row.place, row.digest)


_AT_ONCE = 1000
"""So many entries go with one append at most."""


def read_entries(connection: sa.Connection, since: datetime | None) -> tuple[LogEntry, ...]:
    """Return the entries from a moment on; an older store has none yet."""
    query = sa.select(LOG.c.at, LOG.c.entry).order_by(LOG.c.place)
    if since is not None:
        query = query.where(LOG.c.at >= since.isoformat())
    with rows_of(LOG):
        return tuple(
            LogEntry.model_validate({"at": row.at, **json.loads(row.entry)})
            for row in found_in(connection, LOG, query)
        )


def read_chain(connection: sa.Connection) -> Chain:
    """Return the log as it is kept; an older store has none yet."""
    anchor, head = _read_ends(connection)
    columns = (LOG.c.place, LOG.c.at, LOG.c.entry, LOG.c.digest)
    rows = found_in(connection, LOG, sa.select(*columns).order_by(LOG.c.place))
    return Chain(anchor, tuple(Link(*row) for row in rows), head)


def _read_ends(connection: sa.Connection) -> tuple[Mark, Mark]:
    """Return the anchor and the head, which nobody else moves before this transaction ends."""
    query = sa.select(ABOUT.c.value).where(_SAME)
    if connection.dialect.name == "postgresql":
        query = query.with_for_update()
    text = connection.execute(query).scalar()
    if not text:
        return Mark(), Mark()
    with rows_of(ABOUT):
        ends = json.loads(text)
        return Mark(*ends["anchor"]), Mark(*ends["head"])
