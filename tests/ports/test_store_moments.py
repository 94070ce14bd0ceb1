"""What every Store promises of the worlds that runs observed: kept whole, in order, for a time."""

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.errors import StoreFailed
from fleet.model.history import RunObservation
from fleet.state.store import Store
from tests.builders import NOW
from tests.ports.stores import Opener, opener, postgres_store, postgres_url, store
from tests.ports.test_store_history import a_sample

__all__ = ["opener", "postgres_store", "postgres_url", "store"]

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)


def keep(
    store: Store, *minutes: float, days: float = 35, worlds: Sequence[str] | None = None
) -> None:
    for nth, each in enumerate(minutes):
        world = worlds[nth] if worlds else f'{{"world": {each}}}'
        observed = RunObservation(NOW + each * MINUTE, world, days * DAY)
        store.record_sample(a_sample(minutes=-each), observed)


def kept(store: Store, since: float = -1e6, until: float = 1e6) -> list[bytes]:
    return list(store.moments(NOW + since * MINUTE, NOW + until * MINUTE))


def worlds_of(*minutes: float) -> list[bytes]:
    return [f'{{"world": {each}}}'.encode() for each in minutes]


def test_new_store_has_no_observations(store: Store) -> None:
    assert kept(store) == []


def test_observed_worlds_round_trip_in_order(store: Store, opener: Opener) -> None:
    keep(store, *range(75))

    assert kept(opener("debian")) == worlds_of(*range(75))
    assert kept(store, since=60, until=70) == worlds_of(*range(60, 71))


def test_first_world_of_a_time_is_kept(store: Store) -> None:
    keep(store, 0, 0, worlds=["first", "second"])

    assert kept(store) == [b"first"]


@pytest.mark.slow
def test_worlds_older_than_retention_are_deleted(store: Store) -> None:
    keep(store, *range(0, 700, 10), days=1)
    keep(store, 10_000, days=1)

    assert kept(store) == worlds_of(10_000)


def test_retention_of_zero_deletes_kept_worlds(store: Store) -> None:
    keep(store, 0, 10)
    keep(store, 20, days=0)

    assert kept(store) == []


def test_worlds_are_kept_when_clock_went_back(store: Store) -> None:
    keep(store, 0, 10, 500, 20, 30, 510)

    assert {*kept(store)} >= {*worlds_of(0, 10, 500, 510)}
    keep(store, 520)
    assert kept(store)[-1:] == worlds_of(520)


@given(worlds=st.lists(st.text(max_size=300), max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_round_trips_in_worlds(
    worlds: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "store.db"
    store = Store(f"sqlite:///{path}", "debian")
    store.init()

    keep(store, *range(len(worlds)), worlds=worlds)

    assert kept(store) == [each.encode() for each in worlds]


def a_store(folder: Path) -> Store:
    store = Store(f"sqlite:///{folder}/store.db", "debian")
    store.init()
    return store


@pytest.mark.slow
def test_each_further_world_needs_little_space(tmp_path: Path) -> None:
    store, names = a_store(tmp_path), [f"package-{n * 7919 % 10_007}" for n in range(400)]
    worlds = [" ".join(names[nth : nth + 300]) for nth in range(60)]

    keep(store, *range(60), worlds=worlds)

    first, *later = (len(str(row["world"])) for row in store.dump()["moments"])
    assert sum(later) / len(later) < first / 10


def test_kept_worlds_are_in_the_dump(tmp_path: Path) -> None:
    keep(store := a_store(tmp_path), 0, 10)
    copy = Store(f"sqlite:///{tmp_path}/copy.db", "debian")

    copy.fill(store.dump())

    assert kept(copy) == worlds_of(0, 10)


@pytest.mark.parametrize("text", ["", "!", "é", "Xk~0{Zy"])
def test_damaged_world_is_an_error_with_its_time(tmp_path: Path, text: str) -> None:
    keep(store := a_store(tmp_path), 0, 10)
    with store.begin() as connection:
        connection.execute(sa.text("update fleet_moments set world = :text"), {"text": text})

    with pytest.raises(StoreFailed, match="fleet_moments"):
        kept(store)


@pytest.mark.slow
def test_selected_worlds_are_spread_evenly(store: Store) -> None:
    keep(store, *range(0, 6 * 1440, 240))

    found = [*store.some_moments(NOW + MINUTE, NOW + 5 * DAY, 2)]

    early, late = (json.loads(each)["world"] for each in found)
    assert 1 <= early < 2.5 * 1440 <= late <= 5 * 1440
