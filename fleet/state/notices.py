"""Remember in the store's database which notices were sent."""

from collections.abc import Mapping
from datetime import datetime

import sqlalchemy as sa

from fleet.model.values import in_utc
from fleet.state.database import ABOUT, rows_of

_SENT = "notice "
_WORDS = {"sent": True, "failed": False}


def read_notified(connection: sa.Connection) -> Mapping[str, tuple[bool, datetime]]:
    """Return what was sent, or tried, and when."""
    about = ABOUT.c
    query = sa.select(about.key, about.value).where(about.key.startswith(_SENT))
    rows = connection.execute(query).all()
    with rows_of(ABOUT):
        parted = [(key.removeprefix(_SENT), *value.split(" ", 1)) for key, value in rows]
        return {
            key: (_WORDS[word], in_utc(datetime.fromisoformat(at))) for key, word, at in parted
        }


def write_notified(
    connection: sa.Connection, tried: Mapping[str, tuple[bool, datetime]], before: datetime
) -> None:
    """Write down what was tried, and drop what was last tried before that moment."""
    old = {key for key, (_, at) in read_notified(connection).items() if at < before}
    keys = [f"{_SENT}{key}" for key in {*old, *tried}]
    connection.execute(sa.delete(ABOUT).where(ABOUT.c.key.in_(keys)))
    rows = [
        {"key": f"{_SENT}{key}", "value": f"{'sent' if sent else 'failed'} {at.isoformat()}"}
        for key, (sent, at) in tried.items()
    ]
    if rows:
        connection.execute(sa.insert(ABOUT), rows)
