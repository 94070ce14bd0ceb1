"""What every Store promises of samples and worlds: what runs saw, thinned out and for a time."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.model.history import RunSample
from fleet.state.store import Store
from tests.builders import NOW, ago
from tests.ports.records import (
    MINUTE,
    UNREAD,
    a_charge,
    a_charging,
    a_sample,
    keep,
    kept,
    worlds_of,
)
from tests.ports.stores import Opener, opener, postgres_store, postgres_url, store

__all__ = ["opener", "postgres_store", "postgres_url", "store"]

DAY = 24 * 60


def minutes_of(store: Store) -> list[int]:
    """Return the ages of all samples."""
    samples = store.samples(ago(days=80), ago(days=-40))
    return [(NOW - each.at) // MINUTE for each in samples]


def test_samples_are_returned_oldest_first_and_replaced(store: Store, opener: Opener) -> None:
    unread = RunSample(at=ago(minutes=10), fleet=UNREAD, pools={"arm": UNREAD})
    for minutes in (10, 20, 0):
        store.record_sample(a_sample(minutes=minutes))
    store.record_sample(unread)

    found = opener("debian").samples(ago(days=1), NOW)
    assert found == (a_sample(minutes=20), unread, a_sample())
    assert store.samples(ago(minutes=10), ago(minutes=10)) == (unread,)


def test_samples_are_thinned_after_two_days_and_deleted_after_35(store: Store) -> None:
    old = 3 * DAY
    for minutes in (36 * DAY, 35 * DAY, old + 10, old + 6, old + 1, old, 8, 4, 0):
        store.record_sample(a_sample(minutes=minutes))

    assert minutes_of(store) == [35 * DAY, old + 1, old, 8, 4, 0]
    hours = (NOW, ago(days=3), ago(days=1))
    store.charge(a_charging(*(a_charge(hour=hour) for hour in hours)))
    assert store.charged_since() == ago(days=3)


# worlds


def test_observed_worlds_round_trip_in_order(store: Store, opener: Opener) -> None:
    keep(store, *range(75))
    keep(store, 0, worlds=["a second world of this time"])

    assert kept(opener("debian")) == worlds_of(*range(75))
    assert kept(store, since=60, until=70) == worlds_of(*range(60, 71))


@pytest.mark.slow
def test_worlds_older_than_retention_are_deleted(store: Store) -> None:
    keep(store, *range(0, 700, 10), days=1)
    keep(store, 10_000, days=1)

    assert kept(store) == worlds_of(10_000)
    keep(store, 10_020, days=0)
    assert kept(store) == []


def test_worlds_are_kept_when_clock_went_back(store: Store) -> None:
    keep(store, 0, 10, 500, 20, 30, 510)

    assert {*kept(store)} >= {*worlds_of(0, 10, 500, 510)}
    keep(store, 520)
    assert kept(store)[-1:] == worlds_of(520)


def a_store(folder: Path) -> Store:
    store = Store(f"sqlite:///{folder}/store.db", "debian")
    store.init()
    return store


@given(worlds=st.lists(st.text(max_size=300), max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_round_trips_in_worlds(
    worlds: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = a_store(tmp_path_factory.mktemp("store"))

    keep(store, *range(len(worlds)), worlds=worlds)

    assert kept(store) == [each.encode() for each in worlds]


@pytest.mark.slow
def test_each_further_world_needs_little_space(tmp_path: Path) -> None:
    store, names = a_store(tmp_path), [f"package-{n * 7919 % 10_007}" for n in range(400)]
    worlds = [" ".join(names[nth : nth + 300]) for nth in range(60)]

    keep(store, *range(60), worlds=worlds)

    first, *later = (len(str(row["world"])) for row in store.dump()["moments"])
    assert sum(later) / len(later) < first / 10


@pytest.mark.slow
def test_selected_worlds_are_spread_evenly(store: Store) -> None:
    keep(store, *range(0, 6 * DAY, 240))

    found = [*store.some_moments(NOW + MINUTE, NOW + timedelta(days=5), 2)]

    early, late = (json.loads(each)["world"] for each in found)
    assert 1 <= early < 2.5 * DAY <= late <= 5 * DAY
