"""What every Store promises of samples: what runs observed, thinned out and for 35 days."""

from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.errors import StoreFailed, StoreMissing
from fleet.model.history import MomentFigures, RunSample
from fleet.state.store import Store
from tests.builders import NOW
from tests.ports.stores import Opener, a_record, opener, postgres_store, postgres_url, store
from tests.ports.test_store_ledger import a_charging, an_entry

__all__ = ["opener", "postgres_store", "postgres_url", "store"]

SEEN = MomentFigures(busy=2, idle=1, starting=0, other=0, waiting=3, nanos=120_000_000)
UNREAD = MomentFigures(None, None, None, None, None, None)
MONTH = timedelta(days=40)


def a_sample(*, minutes: float = 0, **pools: MomentFigures) -> RunSample:
    at = NOW - timedelta(minutes=minutes)
    return RunSample(at=at, fleet=SEEN, pools=pools or {"builders": SEEN})


def all_of(store: Store) -> list[RunSample]:
    return list(store.samples(NOW - 2 * MONTH, NOW + MONTH))


def test_new_store_has_no_history(store: Store) -> None:
    assert all_of(store) == []
    assert store.charged_since() is None


def test_samples_are_returned_oldest_first(store: Store, opener: Opener) -> None:
    for minutes in (10, 20, 0):
        store.record_sample(a_sample(minutes=minutes))

    assert all_of(opener("debian")) == [a_sample(minutes=each) for each in (20, 10, 0)]


def test_samples_of_requested_time_span_are_read(store: Store) -> None:
    for minutes in (30, 20, 10):
        store.record_sample(a_sample(minutes=minutes))

    found = store.samples(NOW - timedelta(minutes=20), NOW - timedelta(minutes=20))

    assert found == (a_sample(minutes=20),)


def test_unknown_figures_round_trip_in_samples(store: Store) -> None:
    sample = RunSample(at=NOW, fleet=UNREAD, pools={"builders": UNREAD})
    store.record_sample(sample)

    assert all_of(store) == [sample]


def test_second_sample_of_a_time_replaces_the_first(store: Store) -> None:
    store.record_sample(a_sample())
    store.record_sample(a_sample(arm=UNREAD))

    assert all_of(store) == [a_sample(arm=UNREAD)]


def test_samples_older_than_35_days_are_deleted(store: Store) -> None:
    day = 24 * 60
    for minutes in (36 * day, 35 * day, 0):
        store.record_sample(a_sample(minutes=minutes))

    assert [each.at for each in all_of(store)] == [NOW - timedelta(days=35), NOW]


def test_last_sample_per_ten_minutes_is_kept_after_two_days(store: Store) -> None:
    old = 3 * 24 * 60
    for minutes in (old + 10, old + 6, old + 1, old, 8, 4, 0):
        store.record_sample(a_sample(minutes=minutes))

    ages = [(NOW - each.at) // timedelta(minutes=1) for each in all_of(store)]
    assert ages == [old + 1, old, 8, 4, 0]


def test_samples_of_renamed_pool_follow_its_stack(store: Store) -> None:
    store.record_stack(a_record(pool="builders"))
    store.record_sample(a_sample(builders=SEEN, other=UNREAD))

    store.record_stack(a_record(pool="heavy"))

    assert [each.pools for each in all_of(store)] == [{"heavy": SEEN, "other": UNREAD}]


def test_existing_sample_of_new_name_keeps_its_figures(store: Store) -> None:
    store.record_stack(a_record(pool="builders"))
    store.record_sample(a_sample(builders=SEEN, heavy=UNREAD))

    store.record_stack(a_record(pool="heavy"))

    assert [each.pools for each in all_of(store)] == [{"heavy": UNREAD}]


def test_first_charged_hour_is_known(store: Store) -> None:
    hours = (NOW, NOW - timedelta(days=3), NOW - timedelta(days=1))
    store.charge(a_charging(*(an_entry(hour=hour) for hour in hours)))

    assert store.charged_since() == NOW - timedelta(days=3)


def test_missing_store_has_no_samples(opener: Opener) -> None:
    with pytest.raises(StoreMissing):
        opener("debian").samples(NOW, NOW)


def test_history_is_exported_and_imported(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    store.record_sample(a_sample())
    copy = Store(f"sqlite:///{tmp_path}/copy.db", "debian")

    copy.fill(store.dump())

    assert all_of(copy) == [a_sample()]


@pytest.mark.parametrize("text", ["{", "[]", '{"fleet": [1, 2]}', '{"pools": 1}'])
def test_damaged_sample_is_an_error_with_its_name(tmp_path: Path, text: str) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    store.record_sample(a_sample())
    with store.begin() as connection:
        connection.execute(sa.text("update fleet_samples set sample = :text"), {"text": text})

    with pytest.raises(StoreFailed, match="fleet_samples"):
        all_of(store)
