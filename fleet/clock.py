"""The computer's clock."""

from datetime import UTC, datetime

FIRST_YEAR = 1970
LAST_YEAR = 2200
"""Moments that fleet stores and reads are between these years."""


def utc_now() -> datetime:
    """Return the present moment, in UTC."""
    return datetime.now(UTC)


class SystemClock:
    """The computer's clock: Clock."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        return utc_now()
