"""When a window of time is open, in its own time zone."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.planner.lifecycle.replace import parse_window, why_closed
from tests.builders.sentences import tells

BERLIN = "Europe/Berlin"


def at(text: str) -> datetime:
    """Return a moment of UTC in November 2026 or where it says: the 23rd is a Monday."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "opened", "closed"),
    [
        (
            f"mon-fri 07:00-17:00 {BERLIN}",
            "23T06:00 23T15:59 27T12:00",
            "23T05:59 23T16:00 28T12:00",
        ),
        ("mon 07:00-08:00", "23T06:30", "23T07:30"),
        ("fri 22:00-06:00 UTC", "27T22:00 28T05:59", "27T21:59 28T06:00 28T22:00 27T05:00"),
        ("sun 22:00-06:00 UTC", "23T03:00", "23T12:00"),
        ("sat-mon 00:00-24:00 UTC", "28T12:00 29T12:00 23T12:00", "24T12:00 27T12:00"),
        ("mon-sun 00:00-24:00 UTC", "23T00:00 26T12:00 29T23:59", ""),
        ("mon 20:00-24:00 UTC", "23T23:59", "24T00:00"),
        ("mon 07:00-07:00 UTC", "24T06:59", "24T07:00"),
    ],
)
def test_window_is_open_from_start_until_end(text: str, opened: str, closed: str) -> None:
    window = parse_window(text, BERLIN)

    assert [day for day in opened.split() if not window.is_open(at(f"2026-11-{day}"))] == []
    assert [day for day in closed.split() if window.is_open(at(f"2026-11-{day}"))] == []


def test_window_never_opens_in_skipped_hour_of_spring() -> None:
    window = parse_window(f"sun 02:00-03:00 {BERLIN}", "UTC")
    night = [at("2027-03-28T00:00") + timedelta(minutes=10 * n) for n in range(24)]

    assert not any(window.is_open(moment) for moment in night)
    assert window.next_opening(night[0]) == at("2027-04-04T00:00")


def test_window_opens_twice_in_repeated_hour_of_autumn() -> None:
    window = parse_window(f"sun 02:00-03:00 {BERLIN}", "UTC")
    night = [at("2026-10-25T00:00") + timedelta(minutes=10 * n) for n in range(18)]

    assert sum(window.is_open(moment) for moment in night) == 12


def test_closed_window_names_next_opening() -> None:
    windows = [parse_window(f"{day} 07:00-17:00 {BERLIN}", "UTC") for day in ("wed", "tue")]

    said = why_closed(windows, at("2026-11-23T12:00"))

    assert tells(said, "replace.windows", "2026-11-24 07:00", BERLIN)


def test_replacement_is_always_allowed_without_windows() -> None:
    assert why_closed([], at("2026-11-23T12:00")) == ""


def test_window_in_unknown_zone_never_opens() -> None:
    window = parse_window("mon-sun 00:00-24:00 Mars/Olympus", "UTC")

    assert tells(
        why_closed([window], at("2026-11-23T12:00")), "replace.windows", "Mars/Olympus", "unknown"
    )


WINDOWS = st.builds(
    "{} {:02}:{:02}-{:02}:{:02} {}".format,
    st.sampled_from(["mon", "sat-mon", "mon-fri", "sun"]),
    st.integers(0, 23),
    st.integers(0, 59),
    st.integers(0, 23),
    st.integers(0, 59),
    st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
)


@given(WINDOWS, st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1)))  # noqa: DTZ001 - made aware below
def test_closed_window_opens_at_reported_time(text: str, moment: datetime) -> None:
    window = parse_window(text, "UTC")
    now = moment.replace(tzinfo=UTC)

    opening = window.next_opening(now)

    assert opening is not None
    assert opening > now
    assert window.is_open(opening)
