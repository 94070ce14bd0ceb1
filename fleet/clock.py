"""The computer's clock."""

from datetime import UTC, datetime

FIRST_YEAR = 1970
LAST_YEAR = 2200
"""Last year of the times that fleet stores and reads."""


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


class SystemClock:
    """The clock of this computer, as an implementation of the port `Clock`."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return utc_now()
