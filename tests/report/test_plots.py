"""Plots: steps of what is known, gaps of what is not, round axes; nothing outside the picture."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.explain.history import SlotGrid
from fleet.report.plots import Gap, Tick, ValuePath, nice_top, stacked, stepped
from tests.builders import NOW

HOUR = timedelta(hours=1)


def a_span(slots: int) -> SlotGrid:
    return SlotGrid(NOW, HOUR, slots, HOUR)


def test_plot_stacks_kinds_and_merges_equal_steps() -> None:
    plot = stacked("m", a_span(4), [("busy", [1, 1, 2, 0]), ("idle", [1, 1, 0, 2])])

    assert plot.areas == (
        ValuePath("busy", "M0 50H2V0H3V100H4V100H0Z"),
        ValuePath("idle", "M0 0H4V100H3V0H2V50H0Z"),
    )
    assert (plot.low, plot.high, plot.unknown) == (2, 2, 0)


def test_unknown_slots_are_gaps_in_plot() -> None:
    plot = stepped("w", a_span(8), [2, 2, None, None, None, 2, 2, None])

    assert plot.line == "M0 0H2M5 0H7"
    assert plot.areas == (ValuePath("one", "M0 0H2V100H0ZM5 0H7V100H5Z"),)
    assert plot.gaps == (Gap(2, 3, 43.75, is_wide=True), Gap(7, 1, 93.75, is_wide=False))
    assert plot.unknown == 4


@pytest.mark.parametrize(
    ("most", "limit", "top"),
    [
        (0, None, 1),
        (0.05, None, 0.06),
        (0.3, None, 0.4),
        (1, None, 1),
        (3, None, 4),
        (7, None, 8),
        (12, None, 20),
        (3, 6, 6),
        (3, 100, 100),
        (9, 6, 10),
        (4321, None, 6000),
    ],
)
def test_axis_ends_at_a_round_number(most: float, limit: float | None, top: float) -> None:
    assert nice_top(most, limit) == top


def test_limit_is_always_in_the_plot() -> None:
    near = stacked("m", a_span(1), [("busy", [3])], limit=4)
    far = stacked("m", a_span(1), [("busy", [3])], limit=400)
    passed = stacked("m", a_span(1), [("busy", [8])], limit=4)

    assert (near.mark, far.mark, passed.mark) == (0, 0, 50)


def test_plot_of_at_most_two_days_has_hour_labels() -> None:
    young = SlotGrid(NOW + HOUR / 2, timedelta(minutes=5), 24, HOUR)

    assert [hour.text for hour in stepped("w", young, [0] * 24).days] == ["09:00", "10:00"]
    assert len(stepped("w", a_span(48), [0] * 48).days) == 8


def test_day_labels_are_at_midnight_utc_with_first_month() -> None:
    assert stepped("w", a_span(64), [0] * 64).days == (Tick(25.0, "22 Nov"), Tick(62.5, "23"))


values = st.lists(st.none() | st.floats(0, 1e6), min_size=1, max_size=40)


@given(values)
def test_steps_are_inside_the_picture(found: list[float | None]) -> None:
    plot = stepped("w", a_span(len(found)), found)

    for shape in (plot.line, *(area.path for area in plot.areas)):
        assert re.fullmatch(r"(M\d+ [\d.]+([HV][\d.]+)*Z?)*", shape)
        heights = [float(each) for each in re.findall(r"(?:V|M\d+ )([\d.]+)", shape)]
        places = [int(each) for each in re.findall(r"[HM](\d+)", shape)]
        assert all(0 <= height <= 100 for height in heights)
        assert all(0 <= place <= len(found) for place in places)


@given(values)
def test_gaps_and_steps_cover_every_slot_once(found: list[float | None]) -> None:
    plot = stepped("w", a_span(len(found)), found)

    gone = sum(gap.width for gap in plot.gaps)
    assert gone == plot.unknown == found.count(None)
    assert plot.line.count("M") == len(
        re.findall("k+", "".join("u" if each is None else "k" for each in found))
    )
