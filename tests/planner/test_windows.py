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
    ("moment", "is_open"),
    [
        ("2026-11-23T05:59", False),
        ("2026-11-23T06:00", True),
        ("2026-11-23T15:59", True),
        ("2026-11-23T16:00", False),
        ("2026-11-27T12:00", True),
        ("2026-11-28T12:00", False),
    ],
)
def test_window_is_open_from_start_until_end_in_its_zone(moment: str, *, is_open: bool) -> None:
    assert parse_window(f"mon-fri 07:00-17:00 {BERLIN}", "UTC").is_open(at(moment)) is is_open


def test_window_without_zone_is_in_zone_of_file() -> None:
    window = parse_window("mon 07:00-08:00", BERLIN)

    assert window.is_open(at("2026-11-23T06:30"))
    assert not window.is_open(at("2026-11-23T07:30"))


@pytest.mark.parametrize(
    ("moment", "is_open"),
    [
        ("2026-11-27T21:59", False),
        ("2026-11-27T22:00", True),
        ("2026-11-28T05:59", True),
        ("2026-11-28T06:00", False),
        ("2026-11-28T22:00", False),
        ("2026-11-27T05:00", False),
    ],
)
def test_window_over_midnight_ends_on_next_day(moment: str, *, is_open: bool) -> None:
    assert parse_window("fri 22:00-06:00", "UTC").is_open(at(moment)) is is_open


def test_window_on_sunday_night_ends_on_monday() -> None:
    assert parse_window("sun 22:00-06:00", "UTC").is_open(at("2026-11-23T03:00"))


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("sat-mon 00:00-24:00", {5, 6, 0}),
        ("wed 00:00-24:00", {2}),
        ("mon-sun 00:00-24:00", {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_range_of_days_may_cross_end_of_week(text: str, days: set[int]) -> None:
    window = parse_window(text, "UTC")

    assert {
        number for number in range(7) if window.is_open(at(f"2026-11-{23 + number}T12:00"))
    } == days


def test_window_may_end_at_24_00() -> None:
    window = parse_window("mon 20:00-24:00", "UTC")

    assert window.is_open(at("2026-11-23T23:59"))
    assert not window.is_open(at("2026-11-24T00:00"))


def test_window_with_equal_start_and_end_is_a_whole_day() -> None:
    window = parse_window("mon 07:00-07:00", "UTC")

    assert window.is_open(at("2026-11-24T06:59"))
    assert not window.is_open(at("2026-11-24T07:00"))


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
