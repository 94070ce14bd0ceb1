"""What every Store promises, run over SQLite and PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.errors import EngineMismatch, StoreFailed, StoreMissing
from fleet.model.facts import PriceList
from fleet.model.log import LogEntry
from fleet.model.orders import Hold
from fleet.state.database import ABOUT
from fleet.state.store import Store
from tests.builders import NOW, ago, an_attempt
from tests.ports.stores import Opener, a_record, opener, postgres_store, postgres_url, store
from tests.rigs import postgres

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


# existence


def test_uncreated_store_is_missing(opener: Opener) -> None:
    store = opener("debian")

    with pytest.raises(StoreMissing):
        store.stacks()
    with pytest.raises(StoreMissing):
        store.last_runs(1)
    with pytest.raises(StoreMissing), store.lock("me", NOW):
        pass


def test_read_does_not_create_store(opener: Opener) -> None:
    store = opener("debian")
    for _ in range(2):
        with pytest.raises(StoreMissing):
            store.stacks()

    assert store.init() is True


def test_repeated_init_keeps_contents(opener: Opener) -> None:
    store = opener("debian")
    store.init()
    store.record_stack(a_record())

    assert opener("debian").init() is False
    assert store.stacks() == (a_record(),)


def test_store_of_another_fleet_is_refused(store: Store, opener: Opener) -> None:
    store.record_stack(a_record())

    with pytest.raises(StoreFailed, match="fleet debian"):
        opener("fedora").stacks()
    with pytest.raises(StoreFailed, match="fleet debian"):
        opener("fedora").init()


class LateStore(Store):
    """A store that looks while there is none yet, and creates it when another one has."""

    looked = False

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        if not self.looked:
            self.looked = True
            raise StoreMissing("not yet")
        with super().begin() as connection:
            yield connection


@pytest.mark.parametrize("fleet", ["debian", "fedora"])
def test_concurrent_init_keeps_first_store(tmp_path: Path, fleet: str) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    first, late = Store(url, "debian"), LateStore(url, fleet)
    first.init()
    first.record_stack(a_record())

    if fleet == "debian":
        assert late.init() is False
    else:
        with pytest.raises(StoreFailed, match="fleet debian"):
            late.init()

    assert first.stacks() == (a_record(),)


# stacks


def test_new_store_has_no_stacks(store: Store) -> None:
    assert store.stacks() == ()


def test_stacks_are_stored_and_sorted_by_name(store: Store, opener: Opener) -> None:
    store.record_stack(a_record(name="debian-b"))
    store.record_stack(a_record(name="debian-a"))

    assert [each.name for each in opener("debian").stacks()] == ["debian-a", "debian-b"]


def test_stack_recorded_again_is_replaced(store: Store) -> None:
    store.record_stack(a_record(serial=3))
    store.record_stack(a_record(serial=4))

    assert store.stacks() == (a_record(serial=4),)


def test_stack_of_another_engine_is_refused_and_kept(store: Store) -> None:
    store.record_stack(a_record(engine="embedded"))

    with pytest.raises(EngineMismatch):
        store.record_stack(a_record(engine="pulumi"))

    assert store.stacks() == (a_record(engine="embedded"),)


def test_forget_of_stack_is_idempotent(store: Store) -> None:
    store.record_stack(a_record())

    store.forget_stack("debian-builders")
    store.forget_stack("debian-builders")

    assert store.stacks() == ()


# runs


def test_runs_are_returned_newest_first(store: Store) -> None:
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


def test_ended_run_is_found_before_many_killed_ones(store: Store) -> None:
    store.record_run(started=NOW, ended=NOW, plan="p", outcome="{}")
    for number in range(1, 31):
        store.begin_run(started=NOW + timedelta(minutes=number))
    store.record_run(started=ago(days=1), ended=NOW, plan="", outcome="forgot a machine")

    assert [run["plan"] for run in store.last_runs(5, ended=True)] == ["p"]


def test_oldest_runs_are_removed_from_journal(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian", journal=3)
    store.init()
    for number in range(5):
        moment = NOW + timedelta(minutes=number)
        store.begin_run(started=moment)
        store.record_run(started=moment, ended=moment, plan=str(number), outcome="{}")

    assert [run["plan"] for run in store.last_runs(9)] == ["4", "3", "2"]


def test_unfinished_run_is_stored_without_end(store: Store) -> None:
    store.begin_run(started=NOW)

    assert [dict(run) for run in store.last_runs(2)] == [
        {"started": NOW.isoformat(), "ended": "", "plan": "", "outcome": ""}
    ]


def test_steps_of_run_are_stored_until_its_outcome(store: Store) -> None:
    store.begin_run(started=NOW)
    store.record_step(started=NOW, step="queue q: drain a")
    store.record_step(started=NOW, step="queue q: drain b")
    store.record_step(started=NOW + timedelta(minutes=1), step="of no run")
    begun = [run["outcome"] for run in store.last_runs(2)]
    store.record_run(started=NOW, ended=NOW, plan="p", outcome="{}")

    assert begun == ["queue q: drain a\nqueue q: drain b\n"]
    assert [run["outcome"] for run in store.last_runs(2)] == ["{}"]


def test_finished_run_is_stored_once(store: Store) -> None:
    store.begin_run(started=NOW)
    store.begin_run(started=NOW + timedelta(minutes=1))

    store.record_run(started=NOW + timedelta(minutes=1), ended=NOW, plan="p", outcome="{}")

    assert [run["outcome"] for run in store.last_runs(3)] == ["{}", ""]


# what only databases can get wrong


@pytest.mark.skipif(bool(postgres.why_not()), reason=f"NOT TESTED: {postgres.why_not()}")
def test_messages_hide_password() -> None:
    store = Store("postgresql://fleet:canary@127.0.0.1:1/fleet", "debian")

    with pytest.raises(StoreFailed) as failed:
        store.stacks()

    assert "canary" not in str(failed.value)
    assert "postgresql://fleet:***@127.0.0.1:1/fleet" in str(failed.value)


@pytest.mark.skipif(find_spec("psycopg") is not None, reason="psycopg is installed")
def test_missing_driver_error_names_extra() -> None:
    with pytest.raises(StoreFailed, match=r"psycopg.*`postgres`"):
        Store("postgres://fleet@127.0.0.1:1/fleet", "debian").stacks()


def test_store_of_another_version_is_refused(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    engine = sa.create_engine(f"sqlite:///{tmp_path}/store.db")
    with engine.begin() as connection:
        connection.execute(sa.text("update fleet_about set value='9' where key='format'"))
    engine.dispose()

    with pytest.raises(StoreFailed, match=r"store.*9"):
        store.stacks()


# approvals


def test_new_store_has_no_used_approvals(store: Store) -> None:
    assert store.spent() == {}


def test_approval_is_used_once_per_machine(store: Store) -> None:
    store.spend("a", ("one:1", "two:2"))
    store.spend("a", ("two:2", "three:3"))
    store.spend("b", ("one:1",))

    assert store.spent() == {"a": ("one:1", "three:3", "two:2"), "b": ("one:1",)}


def test_refund_affects_only_its_approval(store: Store) -> None:
    store.spend("a", ("one:1", "two:2"))
    store.spend("b", ("one:1",))

    store.refund("a", ("one:1", "never:spent"))
    store.refund("b", ("one:1",))

    assert store.spent() == {"a": ("two:2",)}


def test_used_approvals_fail_when_store_is_missing(opener: Opener) -> None:
    with pytest.raises(StoreMissing):
        opener("debian").spent()


# tries to make machines


def test_new_store_has_no_attempts(store: Store) -> None:
    assert store.attempts(10) == ()


def test_attempts_are_stored_in_order(store: Store, opener: Opener) -> None:
    late, early = an_attempt(at=NOW), an_attempt(at=NOW - timedelta(minutes=3))
    store.record_attempts([late, early])

    assert opener("debian").attempts(10) == (early, late)


def test_attempt_gets_its_result_later(store: Store) -> None:
    begun = an_attempt(result="starting")
    ended = an_attempt(result="out-of-stock", detail="resource_unavailable: ccx33")
    store.record_attempts([begun])

    store.record_attempts([ended])

    assert store.attempts(10) == (ended,)


def test_attempts_include_latest_of_each_pool_type_and_market(store: Store) -> None:
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


def test_attempts_include_unfinished_ones_beyond_the_limit(store: Store) -> None:
    begun = [
        an_attempt(worker=f"debian-{number}", at=ago(minutes=number), result=result)
        for number, result in enumerate(("registered", "registered", "starting", "starting"))
    ]
    store.record_attempts(begun)

    found = [each.worker for each in store.attempts(1)]

    assert found == ["debian-3", "debian-2", "debian-0"]


def test_recording_no_attempts_succeeds(store: Store) -> None:
    store.record_attempts([])

    assert store.attempts(10) == ()


def test_old_attempts_are_deleted(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    store.record_attempts([an_attempt(at=NOW - timedelta(days=31))])

    store.record_attempts([an_attempt(at=NOW)])

    assert store.attempts(10) == (an_attempt(at=NOW),)


# price lists


def a_price_list(**overrides: object) -> PriceList:
    quote = {"price": "0.2219", "month": "138.46", "cores": 8, "memory": 1, "disk": 1}
    defaults = {
        "read_at": NOW,
        "location": "fsn1",
        "currency": "EUR",
        "quotes": {"ccx33": quote | {"architecture": "amd64"}},
        "address": "0.0008",
        "disk": None,
    }
    return PriceList.model_validate(defaults | overrides)


def test_latest_price_list_of_each_provider_is_kept(store: Store) -> None:
    newer = a_price_list(read_at=NOW + timedelta(days=1), address=None)
    store.prices.write({"hetzner": a_price_list(), "other": a_price_list(location="ash")})
    store.prices.write({"hetzner": newer})

    assert store.prices.read() == {"hetzner": newer, "other": a_price_list(location="ash")}
    assert store.prices.find("hetzner") == newer
    assert store.prices.find("none") is None


def test_unreadable_price_list_does_not_hide_others(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    with store.begin() as connection:
        row = {"key": "prices hetzner", "value": "of another release"}
        connection.execute(sa.insert(ABOUT), [row])
    store.prices.write({"other": a_price_list()})

    with pytest.raises(StoreFailed, match="table fleet_about"):
        store.prices.find("hetzner")
    assert store.prices.find("other") == a_price_list()


# orders


AN_ENTRY = LogEntry(at=NOW, kind="hold", machine="m-1")


def a_hold(machine: str = "m-1", **overrides: object) -> Hold:
    terms = {"by": "ada", "at": NOW, "until": ago(hours=-2), "reason": "why", "machine": machine}
    return Hold.model_validate(terms | overrides)


def test_orders_exclude_ended_ones(store: Store) -> None:
    over, holding = a_hold("m-2", until=ago(minutes=1)), a_hold()
    for order in (over, holding):
        store.place_order(order, AN_ENTRY)

    assert store.orders(NOW) == (holding,)
    assert store.orders(holding.until) == ()


def test_later_order_replaces_order_of_same_key(store: Store) -> None:
    store.place_order(a_hold(), AN_ENTRY, "console")
    later = a_hold(reason="longer", until=ago(hours=-4))
    store.place_order(later, AN_ENTRY)

    assert store.orders(NOW) == (later,)
    assert store.console(later.key) == ""


def test_console_is_kept_with_its_hold(store: Store) -> None:
    store.place_order(a_hold(), AN_ENTRY, "kernel panic")

    assert store.console(a_hold().key) == "kernel panic"
    assert store.console("hold m-9") == ""


def test_end_of_order_is_idempotent(store: Store) -> None:
    order = a_hold()
    ending = AN_ENTRY.altered(kind="release")
    assert store.lift_orders({order.key: ending}) == frozenset()
    store.place_order(order, AN_ENTRY)

    assert store.lift_orders({order.key: ending, "hold m-9": ending}) == {order.key}
    assert store.lift_orders({order.key: ending}) == frozenset()
    assert store.orders(NOW) == ()
    assert [entry.kind for entry in store.read_log()] == ["hold", "release"]


def test_order_needs_no_lock(opener: Opener) -> None:
    mine, theirs = opener("debian"), opener("debian")
    mine.init()
    with mine.lock("me", NOW):
        theirs.place_order(a_hold(), AN_ENTRY)

        assert mine.orders(NOW) == (a_hold(),)


def test_notices_are_replaced_and_removed_by_name(store: Store) -> None:
    store.notices.write({"webhook a": ("sent", ago(days=2)), "webhook b": ("failed", NOW)})
    store.notices.write({"webhook b": ("sent", NOW)}, ["webhook a"])

    assert store.notices.read() == {"webhook b": ("sent", NOW)}
