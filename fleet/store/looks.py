"""This module keeps what looks at machines found, so that it outlives any checkout."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import sqlalchemy as sa

from fleet.errors import StoreMissing
from fleet.store.tables import ABOUT


class KeptLooks:
    """The looks at one provider's machines, as a text under a key of the store."""

    def __init__(
        self, begin: Callable[[], AbstractContextManager[sa.Connection]], key: str
    ) -> None:
        self._begin = begin
        self._key = key

    def __str__(self) -> str:
        return f"the store, key {self._key!r}"

    def read(self) -> str | None:
        """Return what was noted last; None: nothing was, or there is no store yet."""
        try:
            with self._begin() as connection:
                query = sa.select(ABOUT.c.value).where(ABOUT.c.key == self._key)
                return connection.execute(query).scalar()
        except StoreMissing:
            return None

    def write(self, text: str) -> None:
        """Note this in its place."""
        with self._begin() as connection:
            connection.execute(sa.delete(ABOUT).where(ABOUT.c.key == self._key))
            connection.execute(sa.insert(ABOUT), [{"key": self._key, "value": text}])
