"""This module holds what every Store promises, run over the fake, SQLite and PostgreSQL."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import pytest
import sqlalchemy as sa

from fleet.errors import EngineMismatch, Locked, StoreFailed, StoreMissing
from fleet.facts import Charge, Entry, Ledger
from fleet.ports import Charging, Since, StackRecord, Store
from fleet.store.database import DatabaseStore
from tests import postgres
from tests.builders import NOW, an_attempt
from tests.fakes_store import FakeStore, Shelf


class Creatable(Store, Protocol):
    """A store that can be created."""

    def init(self) -> bool: ...


Opener = Callable[[str], Creatable]
"""Opens the one place where stores of this test live, for a fleet."""


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Return the URL of a PostgreSQL, or skip loudly."""
    if because := postgres.why_not():
        pytest.skip(f"the store in PostgreSQL is NOT TESTED: {because}")
    with postgres.running() as url:
        yield url


def _empty(url: str) -> str:
    engine = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(sa.text("drop schema public cascade"))
        connection.execute(sa.text("create schema public"))
    engine.dispose()
    return url


@pytest.fixture(params=["fake", "sqlite", "postgresql"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Return what opens a store that is not created yet."""
    match request.param:
        case "fake":
            shelf = Shelf()
            return lambda fleet: FakeStore(shelf, fleet)
        case "sqlite":
            return lambda fleet: DatabaseStore(f"sqlite:///{tmp_path}/store.db", fleet)
        case _:
            url = _empty(request.getfixturevalue("postgres_url"))
            return lambda fleet: DatabaseStore(url, fleet)


@pytest.fixture
def store(opener: Opener) -> Store:
    """Return a store that was created and is empty."""
    store = opener("debian")
    store.init()
    return store


def a_record(**overrides: object) -> StackRecord:
    defaults = {
        "name": "debian-builders",
        "pool": "builders",
        "provider": "desk",
        "project": "sim",
        "engine": "embedded",
        "serial": 3,
    }
    return StackRecord.model_validate(defaults | overrides)


# existence


def test_a_store_that_was_not_created_is_missing_and_not_empty(opener: Opener) -> None:
    store = opener("debian")

    with pytest.raises(StoreMissing):
        store.stacks()
    with pytest.raises(StoreMissing):
        store.last_runs(1)
    with pytest.raises(StoreMissing), store.lock("me", NOW):
        pass


def test_looking_does_not_create_it(opener: Opener) -> None:
    store = opener("debian")
    for _ in range(2):
        with pytest.raises(StoreMissing):
            store.stacks()

    assert store.init() is True


def test_creating_it_twice_keeps_what_it_knows(opener: Opener) -> None:
    store = opener("debian")
    store.init()
    store.record_stack(a_record())

    assert opener("debian").init() is False
    assert store.stacks() == (a_record(),)


def test_another_fleet_is_refused(store: Store, opener: Opener) -> None:
    store.record_stack(a_record())

    with pytest.raises(StoreFailed, match="belongs to fleet debian"):
        opener("fedora").stacks()
    with pytest.raises(StoreFailed, match="belongs to fleet debian"):
        opener("fedora").init()


# stacks


def test_a_new_store_knows_no_stack(store: Store) -> None:
    assert store.stacks() == ()


def test_stacks_are_remembered_sorted_by_name_for_whoever_opens_it_next(
    store: Store, opener: Opener
) -> None:
    store.record_stack(a_record(name="debian-b"))
    store.record_stack(a_record(name="debian-a"))

    assert [each.name for each in opener("debian").stacks()] == ["debian-a", "debian-b"]


def test_a_stack_recorded_again_is_replaced(store: Store) -> None:
    store.record_stack(a_record(serial=3))
    store.record_stack(a_record(serial=4))

    assert store.stacks() == (a_record(serial=4),)


def test_a_stack_of_another_engine_is_refused_and_kept(store: Store) -> None:
    store.record_stack(a_record(engine="embedded"))

    with pytest.raises(EngineMismatch):
        store.record_stack(a_record(engine="pulumi"))

    assert store.stacks() == (a_record(engine="embedded"),)


def test_a_forgotten_stack_is_gone_and_forgetting_twice_is_fine(store: Store) -> None:
    store.record_stack(a_record())

    store.forget_stack("debian-builders")
    store.forget_stack("debian-builders")

    assert store.stacks() == ()


# runs


def test_runs_come_back_newest_first(store: Store) -> None:
    for number in range(3):
        moment = NOW + timedelta(minutes=number)
        store.record_run(started=moment, ended=moment, plan=f"plan-{number}", outcome="{}")

    assert [dict(run) for run in store.last_runs(2)] == [
        {
            "started": (NOW + timedelta(minutes=number)).isoformat(),
            "ended": (NOW + timedelta(minutes=number)).isoformat(),
            "plan": f"plan-{number}",
            "outcome": "{}",
        }
        for number in (2, 1)
    ]


def test_a_run_that_was_begun_and_never_ended_is_there_without_an_end(store: Store) -> None:
    store.begin_run(started=NOW)

    assert [dict(run) for run in store.last_runs(2)] == [
        {"started": NOW.isoformat(), "ended": "", "plan": "", "outcome": ""}
    ]


def test_a_run_that_was_begun_and_has_ended_is_there_once(store: Store) -> None:
    store.begin_run(started=NOW)
    store.begin_run(started=NOW + timedelta(minutes=1))

    store.record_run(started=NOW + timedelta(minutes=1), ended=NOW, plan="p", outcome="{}")

    assert [run["outcome"] for run in store.last_runs(3)] == ["{}", ""]


# the ledger


def an_entry(**overrides: object) -> Entry:
    defaults = {"hour": NOW, "pool": "builders", "seconds": 60, "money": "0.002"}
    return Entry.model_validate(defaults | overrides)


def a_charging(*entries: Entry, **overrides: object) -> Charging:
    defaults = {"since": None, "until": NOW, "currency": "EUR", "entries": entries}
    return Charging.model_validate(defaults | overrides)


SINCE = Since(hour=NOW, day=NOW - timedelta(hours=8), month=NOW - timedelta(days=20, hours=8))


def test_a_new_ledger_was_never_charged(store: Store) -> None:
    assert store.ledger(SINCE, "EUR") == Ledger()


def test_the_ledger_adds_up_the_current_hour_day_and_month(store: Store, opener: Opener) -> None:
    hours = [NOW, NOW - timedelta(hours=1), NOW - timedelta(days=1), NOW - timedelta(days=30)]

    assert store.charge(a_charging(*(an_entry(hour=hour) for hour in hours)))

    ledger = opener("debian").ledger(SINCE, "EUR")
    assert ledger == Ledger(
        charged_until=NOW,
        charges=(
            Charge(
                pool="builders",
                seconds=(60, 120, 180),
                money=(Decimal("0.002"), Decimal("0.004"), Decimal("0.006")),
            ),
        ),
    )


def test_each_payer_has_sums_of_its_own(store: Store) -> None:
    of_work = {"scope": "debian", "team": "x", "owner": "ann", "tags": ("big",)}
    store.charge(a_charging(an_entry(), an_entry(**of_work), an_entry(pool="other")))

    charges = store.ledger(SINCE, "EUR").charges

    assert sorted((c.pool, c.scope, c.team, c.owner, c.tags) for c in charges if c.scope) == [
        ("builders", "debian", "x", "ann", ("big",))
    ]
    assert sorted(c.pool for c in charges if c.scope is None) == ["builders", "other"]


def test_an_hour_that_is_charged_in_parts_adds_up_exactly(store: Store) -> None:
    later = NOW + timedelta(minutes=1)
    tenth = an_entry(money="0.1")
    store.charge(a_charging(tenth))
    store.charge(a_charging(an_entry(money="0.2"), since=NOW, until=later))

    (charge,) = store.ledger(SINCE, "EUR").charges

    assert (charge.seconds[0], charge.money[0]) == (120, Decimal("0.3"))


def test_what_is_given_back_is_taken_off(store: Store) -> None:
    store.charge(a_charging(an_entry(money="0.5"), an_entry(seconds=0, money="-0.125")))

    assert store.ledger(SINCE, "EUR").charges[0].money[0] == Decimal("0.375")


def test_the_same_time_is_charged_once(store: Store) -> None:
    later = NOW + timedelta(minutes=1)
    charging = a_charging(an_entry(), since=NOW, until=later)
    store.charge(a_charging())

    assert [store.charge(charging), store.charge(charging)] == [True, False]

    ledger = store.ledger(SINCE, "EUR")
    assert (ledger.charged_until, ledger.charges[0].seconds[0]) == (later, 60)


def test_a_first_charging_counts_once_too(store: Store) -> None:
    assert [store.charge(a_charging(an_entry())) for _ in range(2)] == [True, False]


def test_a_month_charged_in_another_currency_is_not_added_up(store: Store) -> None:
    store.charge(a_charging(an_entry()))

    with pytest.raises(StoreFailed, match="another currency than USD"):
        store.ledger(SINCE, "USD")


def test_the_ledger_of_a_missing_store_is_missing(opener: Opener) -> None:
    with pytest.raises(StoreMissing):
        opener("debian").ledger(SINCE, "EUR")
    with pytest.raises(StoreMissing):
        opener("debian").charge(a_charging())


# the lock


def test_the_lock_is_held_by_one_and_says_by_whom_since_when(store: Store, opener: Opener) -> None:
    with (
        store.lock("alice@here:1", NOW),
        pytest.raises(Locked, match=r"alice@here:1, since 2026-11-21.08:00:00"),
        opener("debian").lock("bob@there:2", NOW),
    ):
        pass


def test_the_lock_is_free_again_however_its_holder_ended(store: Store, opener: Opener) -> None:
    with pytest.raises(KeyboardInterrupt), store.lock("alice@here:1", NOW):
        raise KeyboardInterrupt

    with opener("debian").lock("bob@there:2", NOW) as died:
        assert died is None


def test_who_was_refused_the_lock_takes_nothing_away(store: Store, opener: Opener) -> None:
    with store.lock("alice@here:1", NOW):
        for _ in range(2):
            with pytest.raises(Locked), opener("debian").lock("bob@there:2", NOW):
                pass


# what only databases can get wrong


@pytest.mark.skipif(bool(postgres.why_not()), reason=f"NOT TESTED: {postgres.why_not()}")
def test_a_password_is_in_no_message() -> None:
    store = DatabaseStore("postgresql://fleet:canary@127.0.0.1:1/fleet", "debian")

    with pytest.raises(StoreFailed) as failed:
        store.stacks()

    assert "canary" not in str(failed.value)
    assert "postgresql+psycopg://fleet:***@127.0.0.1:1/fleet" in str(failed.value)


@pytest.mark.skipif(find_spec("psycopg") is not None, reason="psycopg is installed")
def test_a_missing_driver_is_said_with_what_to_install() -> None:
    with pytest.raises(StoreFailed, match=re.escape("pip install 'fleet-reconciler[postgres]'")):
        DatabaseStore("postgres://fleet@127.0.0.1:1/fleet", "debian").stacks()


@pytest.mark.parametrize("url", ["nonsense", "mysql://fleet:canary@host/fleet", "postgres"])
def test_a_url_that_is_no_store_is_told_what_one_looks_like(url: str) -> None:
    with pytest.raises(StoreFailed, match=re.escape("write sqlite, sqlite:///PATH")) as failed:
        DatabaseStore(url, "debian")

    assert "canary" not in str(failed.value)


def test_a_store_from_before_there_was_a_ledger_gets_one_when_it_is_charged(
    tmp_path: Path,
) -> None:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as connection:
        connection.execute(sa.text("drop table fleet_ledger"))
    engine.dispose()

    assert store.ledger(SINCE, "EUR") == Ledger()
    assert store.charge(a_charging(an_entry()))
    assert store.ledger(SINCE, "EUR").charges[0].seconds == (60, 60, 60)


def test_a_charge_that_fails_half_way_adds_nothing(tmp_path: Path) -> None:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "create trigger full before insert on fleet_ledger when new.seconds = 13 "
                "begin select raise(abort, 'disk full'); end"
            )
        )
    engine.dispose()

    with pytest.raises(StoreFailed, match="disk full"):
        store.charge(a_charging(an_entry(), an_entry(pool="other", seconds=13)))

    assert store.ledger(SINCE, "EUR") == Ledger()


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as connection:
        connection.execute(sa.text("update fleet_about set value='9' where key='format'"))
    engine.dispose()

    with pytest.raises(StoreFailed, match="is not a store of this version: 9"):
        store.stacks()


# approvals


def test_a_new_store_has_spent_no_approval(store: Store) -> None:
    assert store.spent() == {}


def test_an_approval_is_spent_for_each_machine_once(store: Store) -> None:
    store.spend("a", ("one:1", "two:2"))
    store.spend("a", ("two:2", "three:3"))
    store.spend("b", ("one:1",))

    assert store.spent() == {"a": ("one:1", "three:3", "two:2"), "b": ("one:1",)}


def test_what_was_not_done_is_taken_back_from_that_approval_only(store: Store) -> None:
    store.spend("a", ("one:1", "two:2"))
    store.spend("b", ("one:1",))

    store.refund("a", ("one:1", "never:spent"))
    store.refund("b", ("one:1",))

    assert store.spent() == {"a": ("two:2",)}


def test_what_is_spent_cannot_be_read_from_a_store_that_is_missing(opener: Opener) -> None:
    with pytest.raises(StoreMissing):
        opener("debian").spent()


def test_a_store_from_before_there_were_approvals_has_spent_none_and_can(tmp_path: Path) -> None:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    with sa.create_engine(store.url).begin() as connection:
        connection.execute(sa.text("drop table fleet_spent"))

    before = store.spent()
    store.spend("a", ("one:1",))

    assert (before, store.spent()) == ({}, {"a": ("one:1",)})


# tries to make machines


def test_a_new_store_remembers_no_try(store: Store) -> None:
    assert store.attempts(10) == ()


def test_tries_are_remembered_in_their_order_for_whoever_opens_it_next(
    store: Store, opener: Opener
) -> None:
    late, early = an_attempt(at=NOW), an_attempt(at=NOW - timedelta(minutes=3))
    store.record_attempts([late, early])

    assert opener("debian").attempts(10) == (early, late)


def test_a_try_gets_its_result_later(store: Store) -> None:
    begun = an_attempt(result="starting")
    ended = an_attempt(result="out-of-stock", detail="resource_unavailable: ccx33")
    store.record_attempts([begun])

    store.record_attempts([ended])

    assert store.attempts(10) == (ended,)


def test_the_latest_tries_of_each_pool_type_and_market_are_told(store: Store) -> None:
    moments = [NOW - timedelta(minutes=minutes) for minutes in (30, 20, 10)]
    ways = [{}, {"pool": "arm"}, {"type": "ccx63"}, {"market": "spot"}]
    for number, way in enumerate(ways):
        tries = [an_attempt(at=at, worker=f"debian-{number}", **way) for at in moments]
        store.record_attempts(tries)

    found = store.attempts(2)

    assert [each.at for each in found] == sorted(moments[1:] * len(ways))
    assert {(each.pool, each.type, each.market) for each in found} == {
        ("builders", "ccx33", "on-demand"),
        ("arm", "ccx33", "on-demand"),
        ("builders", "ccx63", "on-demand"),
        ("builders", "ccx33", "spot"),
    }


def test_recording_no_try_is_fine(store: Store) -> None:
    store.record_attempts([])

    assert store.attempts(10) == ()


def test_a_store_that_an_older_fleet_made_remembers_tries_from_now_on(tmp_path: Path) -> None:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as connection:
        connection.execute(sa.text("drop table fleet_attempts"))
    engine.dispose()
    assert store.attempts(10) == ()

    store.record_attempts([an_attempt()])

    assert store.attempts(10) == (an_attempt(),)


def test_tries_of_long_ago_are_dropped(tmp_path: Path) -> None:
    store = DatabaseStore(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    store.record_attempts([an_attempt(at=NOW - timedelta(days=31))])

    store.record_attempts([an_attempt(at=NOW)])

    assert store.attempts(10) == (an_attempt(at=NOW),)
