"""This module says when machines may be replaced: windows of local time, read from their text.

A window is what the clock on the wall shows: the hour that is skipped in spring does not come,
the one that is repeated in autumn comes twice. An end that is not after its start is on the
next day, and the days are those on which a window begins.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from zoneinfo import ZoneInfo

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = 24 * 60
_FORTNIGHT = 15
"""Days to look ahead: a window that one change of the clocks swallows comes a week later."""


@dataclass(frozen=True)
class Window:
    """Some hours of some days of the week, somewhere."""

    text: str
    days: frozenset[int]
    """The days on which it begins; Monday is 0."""
    start: int
    """Minutes after midnight."""
    end: int
    """Minutes after the same midnight, so beyond a day where it ends on the next."""
    zone: str

    def is_open(self, now: datetime) -> bool:
        """Say whether a moment lies within it; never where its zone is not known."""
        zone = _zone(self.zone)
        if zone is None:
            return False
        local = now.astimezone(zone)
        minute = local.hour * 60 + local.minute
        today = local.weekday() in self.days and self.start <= minute < self.end
        yesterday = (local.weekday() - 1) % 7 in self.days and minute + _DAY < self.end
        return today or yesterday

    def next_opening(self, now: datetime) -> datetime | None:
        """Return when it begins next after a moment, in UTC; None where its zone is not known."""
        zone = _zone(self.zone)
        if zone is None:
            return None
        today = now.astimezone(zone).date()
        at = time(self.start // 60, self.start % 60, tzinfo=zone)
        for ahead in range(_FORTNIGHT):
            day = today + timedelta(days=ahead)
            moment = datetime.combine(day, at).astimezone(UTC)
            if day.weekday() in self.days and moment > now and self.is_open(moment):
                return moment
        return None


def parse_window(text: str, zone: str) -> Window:
    """Read a window as fleet.yaml writes it; `zone` is meant where it names none.

    The text has the form that the schema demands, as in `mon-fri 07:00-17:00 Europe/Berlin`.
    """
    days, hours, *named = text.split(" ")
    first, _, last = days.partition("-")
    begin = _DAYS.index(first)
    length = (_DAYS.index(last or first) - begin) % 7
    start, end = (int(part[:2]) * 60 + int(part[3:]) for part in hours.split("-"))
    return Window(
        text=text,
        days=frozenset((begin + each) % 7 for each in range(length + 1)),
        start=start,
        end=end if end > start else end + _DAY,
        zone=named[0] if named else zone,
    )


def why_closed(windows: Iterable[Window], now: datetime) -> str:
    """Return why a moment lies in none of these windows; empty when it does, or there are none."""
    windows = tuple(windows)
    if not windows or any(window.is_open(now) for window in windows):
        return ""
    openings = [(moment, w.zone) for w in windows if (moment := w.next_opening(now))]
    if not openings:
        zones = ", ".join(sorted({window.zone for window in windows}))
        return f"no window of replace.windows opens: time zone {zones} is not known here"
    moment, zone = min(openings)
    local = moment.astimezone(_zone(zone))
    return f"the next of replace.windows opens {local:%Y-%m-%d %H:%M} {zone}"


def _zone(name: str) -> tzinfo | None:
    """Return a time zone; None where this computer does not know it."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None
