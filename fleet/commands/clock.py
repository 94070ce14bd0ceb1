"""This module reads the computer's clock."""

from datetime import UTC, datetime


class SystemClock:
    """The computer's clock."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        return datetime.now(UTC)
