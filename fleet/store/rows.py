"""This module says which table holds a row that nobody could have written."""

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from fleet.errors import StoreFailed


@contextmanager
def rows_of(table: sa.Table) -> Iterator[None]:
    """Read rows of a table; StoreFailed names it where a value is none that fleet writes."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[:3])
        raise StoreFailed(
            f"table {table.name} of the store holds a row that cannot be read: {reason}. Somebody "
            "else wrote it, or the disk lost it: restore a backup, or take the row out by hand "
            "(docs/how-to/restore-lost-state.md)"
        ) from error
