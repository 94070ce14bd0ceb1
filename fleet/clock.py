"""The computer's clock."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the present moment, in UTC."""
    return datetime.now(UTC)


class SystemClock:
    """The computer's clock: Clock."""

    def now(self) -> datetime:
        """Return the present moment, in UTC."""
        return utc_now()
