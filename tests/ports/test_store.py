"""What every Store promises, run over SQLite and PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from fleet.errors import EngineMismatch, StoreFailed, StoreMissing
from fleet.state.database import ABOUT
from fleet.state.store import Store
from tests.builders import NOW, ago, an_attempt
from tests.ports.records import (
    AN_ENTRY,
    MINUTE,
    READS,
    SINCE,
    UNREAD,
    a_charge,
    a_charging,
    a_hold,
    a_price_list,
    a_sample,
    read_all,
    write_all,
)
from tests.ports.stores import Opener, a_record, opener, postgres_store, postgres_url, store

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


# existence


def test_read_fails_and_creates_no_store_when_it_is_missing(opener: Opener) -> None:
    store = opener("debian")

    for read in READS.values():
        with pytest.raises(StoreMissing):
            read(store)
    with pytest.raises(StoreMissing):
        store.charge(a_charging())
    with pytest.raises(StoreMissing):
        store.append_log([])
    with pytest.raises(StoreMissing), store.lock("me", NOW):
        pass

    assert store.init() is True
    assert read_all(store) == {}


def test_repeated_init_keeps_contents(store: Store, opener: Opener) -> None:
    store.record_stack(a_record())

    assert opener("debian").init() is False
    for refused in (opener("fedora").stacks, opener("fedora").init):
        with pytest.raises(StoreFailed, match="fleet debian"):
            refused()

    assert store.stacks() == (a_record(),)


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


def test_records_of_every_kind_are_exported_and_imported(store: Store, tmp_path: Path) -> None:
    write_all(store)
    copy = Store(f"sqlite:///{tmp_path}/copy.db", "debian")

    copy.fill(store.dump())

    assert read_all(copy) == read_all(store)
    assert read_all(store).keys() == READS.keys() - {"runs", "waits"}


@pytest.mark.parametrize(
    ("table", "column", "texts", "read"),
    [
        ("samples", "sample", ["{", "[]", '{"fleet": [1, 2]}', '{"pools": 1}'], "samples"),
        ("moments", "world", ["", "!", "é", "Xk~0{Zy"], "moments"),
        ("images", "record", ["{}"], "images"),
        ("log", "entry", ["[]"], "log"),
    ],
)
def test_damaged_record_is_an_error_with_its_table(
    tmp_path: Path, table: str, column: str, texts: list[str], read: str
) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    write_all(store)

    for text in texts:
        with store.begin() as connection:
            change = f"update fleet_{table} set {column} = :text"  # noqa: S608 - of this test
            connection.execute(sa.text(change), {"text": text})
        with pytest.raises(StoreFailed, match=f"fleet_{table}"):
            READS[read](store)


def test_store_of_another_version_is_refused(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    with sa.create_engine(store.url, poolclass=sa.NullPool).begin() as connection:
        connection.execute(sa.text("update fleet_about set value='9' where key='format'"))

    with pytest.raises(StoreFailed, match=r"store.*9"):
        store.stacks()


# stacks


def test_stacks_are_stored_by_name_and_replaced(store: Store, opener: Opener) -> None:
    for name, serial in (("debian-b", 3), ("debian-a", 3), ("debian-b", 4)):
        store.record_stack(a_record(name=name, serial=serial, engine="embedded"))
    with pytest.raises(EngineMismatch):
        store.record_stack(a_record(name="debian-a", engine="pulumi"))
    stored = opener("debian").stacks()
    store.forget_stack("debian-b")
    store.forget_stack("debian-b")

    assert [(each.name, each.serial) for each in stored] == [("debian-a", 3), ("debian-b", 4)]
    assert store.stacks() == (a_record(name="debian-a", serial=3, engine="embedded"),)


def test_all_records_follow_the_stack_of_a_renamed_pool(store: Store) -> None:
    write_all(store)
    of_arm = an_attempt(pool="arm", worker="debian-ci-arm-0001")
    store.record_attempts([of_arm])
    of_work = a_charge(scope="debian", tags=("big",))
    charges = a_charging(
        a_charge(pool="heavy", seconds=30), of_work, since=NOW, until=NOW + MINUTE
    )
    store.charge(charges)
    store.record_sample(a_sample(minutes=1, builders=UNREAD, heavy=a_sample().fleet))

    store.record_stack(a_record(pool="heavy"))

    ledger = store.ledger(SINCE, "EUR")
    found = {(each.pool, each.scope, each.tags, each.seconds[0]) for each in ledger.charges}
    assert found == {("heavy", None, (), 90), ("heavy", "debian", ("big",), 60)}
    assert [each.pool for each in ledger.payers] == ["heavy"]
    assert {each.pool for each in store.attempts(5)} == {"heavy", "arm"}
    samples = store.samples(ago(days=1), NOW)
    assert [each.pools for each in samples] == [{"heavy": a_sample().fleet}] * 2


# runs


def test_runs_are_returned_newest_first_with_their_steps(store: Store) -> None:
    first, second = NOW, NOW + MINUTE
    for moment in (first, second):
        store.begin_run(started=moment)
    for moment, step in ((first, "drain a"), (first, "drain b"), (ago(days=1), "of no run")):
        store.record_step(started=moment, step=step)
    begun = [dict(run) for run in store.last_runs(2)]
    store.record_run(started=first, ended=second, plan="p", outcome="{}")

    running = {"started": second.isoformat(), "ended": "", "plan": "", "outcome": ""}
    ran = running | {"started": first.isoformat()}
    assert begun == [running, ran | {"outcome": "drain a\ndrain b\n"}]
    ended = {"ended": second.isoformat(), "plan": "p", "outcome": "{}"}
    assert [dict(run) for run in store.last_runs(3)] == [running, ran | ended]


def test_ended_run_is_found_before_many_killed_ones(store: Store) -> None:
    store.record_run(started=NOW, ended=NOW, plan="p", outcome="{}")
    for number in range(1, 31):
        store.begin_run(started=NOW + number * MINUTE)
    store.record_run(started=ago(days=1), ended=NOW, plan="", outcome="forgot a machine")

    assert [run["plan"] for run in store.last_runs(5, ended=True)] == ["p"]


def test_oldest_runs_are_removed_from_journal(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian", journal=3)
    store.init()
    for number in range(5):
        moment = NOW + number * MINUTE
        store.begin_run(started=moment)
        store.record_run(started=moment, ended=moment, plan=str(number), outcome="{}")

    assert [run["plan"] for run in store.last_runs(9)] == ["4", "3", "2"]


# approvals, tries to make machines, prices


def test_approval_is_used_once_per_machine_and_refunded_alone(store: Store) -> None:
    store.spend("a", ("one:1", "two:2"))
    store.spend("a", ("two:2", "three:3"))
    store.spend("b", ("one:1",))
    spent = store.spent()
    store.refund("a", ("one:1", "never:spent"))
    store.refund("b", ("one:1",))

    assert spent == {"a": ("one:1", "three:3", "two:2"), "b": ("one:1",)}
    assert store.spent() == {"a": ("three:3", "two:2")}


def test_attempts_are_stored_in_order_until_they_are_old(store: Store, opener: Opener) -> None:
    old, early, late = (an_attempt(at=each) for each in (ago(days=31), ago(minutes=3), NOW))
    ended = an_attempt(at=NOW, result="out-of-stock", detail="resource_unavailable: ccx33")
    for attempts in ([old], [late, early], [], [ended]):
        store.record_attempts(attempts)

    assert opener("debian").attempts(10) == (early, ended)


def test_attempts_include_latest_of_each_pool_type_and_market(store: Store) -> None:
    moments = [ago(minutes=minutes) for minutes in (30, 20, 10)]
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


def test_latest_price_list_of_each_provider_is_kept(store: Store) -> None:
    newer = a_price_list(read_at=NOW + timedelta(days=1), address=None)
    store.prices.write({"hetzner": a_price_list(), "other": a_price_list(location="ash")})
    store.prices.write({"hetzner": newer})

    assert store.prices.read() == {"hetzner": newer, "other": a_price_list(location="ash")}
    assert store.prices.find("hetzner") == newer
    assert store.prices.find("none") is None
    with store.begin() as connection:
        connection.execute(
            sa.update(ABOUT).where(ABOUT.c.key == "prices hetzner").values(value="of another")
        )
    with pytest.raises(StoreFailed, match="table fleet_about"):
        store.prices.find("hetzner")
    assert store.prices.find("other") == a_price_list(location="ash")


# orders


def test_order_needs_no_lock_and_later_one_replaces_it(opener: Opener) -> None:
    mine, theirs = opener("debian"), opener("debian")
    mine.init()
    later = a_hold(reason="longer", until=ago(hours=-4))
    with mine.lock("me", NOW):
        theirs.place_order(a_hold(), AN_ENTRY, "kernel panic")
        first, console = mine.orders(NOW), mine.console(a_hold().key)
        theirs.place_order(later, AN_ENTRY)
        theirs.place_order(a_hold("m-2", until=ago(minutes=1)), AN_ENTRY)

    assert (first, console) == ((a_hold(),), "kernel panic")
    assert (mine.orders(NOW), mine.orders(later.until)) == ((later,), ())
    assert (mine.console(later.key), mine.console("hold m-9")) == ("", "")


def test_end_of_order_is_idempotent(store: Store) -> None:
    order = a_hold()
    ending = AN_ENTRY.altered(kind="release")
    assert store.lift_orders({order.key: ending}) == frozenset()
    store.place_order(order, AN_ENTRY)

    assert store.lift_orders({order.key: ending, "hold m-9": ending}) == {order.key}
    assert store.lift_orders({order.key: ending}) == frozenset()
    assert store.orders(NOW) == ()
    assert [entry.kind for entry in store.read_log()] == ["hold", "release"]


def test_notices_are_replaced_and_removed_by_name(store: Store) -> None:
    store.notices.write({"webhook a": ("sent", ago(days=2)), "webhook b": ("failed", NOW)})
    store.notices.write({"webhook b": ("sent", NOW)}, ["webhook a"])

    assert store.notices.read() == {"webhook b": ("sent", NOW)}


# connections


def backend_of(store: Store) -> int:
    """Return which process of the server answers."""
    with store.begin() as connection:
        return int(connection.execute(sa.text("select pg_backend_pid()")).scalar_one())


def test_connection_is_reused_until_the_server_closes_it(
    postgres_store: Store, postgres_url: str
) -> None:
    first, second = backend_of(postgres_store), backend_of(postgres_store)
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("select pg_terminate_backend(%s)", (first,))

    assert first == second != backend_of(postgres_store)


def test_address_and_messages_hide_password() -> None:
    among = Store("postgresql://fleet@host/fleet?password=canary&sslmode=require", "debian")
    store = Store("postgresql://fleet:canary@127.0.0.1:1/fleet", "debian")

    with pytest.raises(StoreFailed) as failed:
        store.stacks()

    assert among.address == "postgresql://fleet@host/fleet?sslmode=require"
    assert "canary" not in str(failed.value)
    assert "postgresql://fleet:***@127.0.0.1:1/fleet" in str(failed.value)


def test_database_has_unique_index_of_ready_machines(store: Store) -> None:
    engine = sa.create_engine(store.url, poolclass=sa.NullPool)
    found = {each["name"]: each for each in sa.inspect(engine).get_indexes("fleet_tickets")}

    index = found["fleet_tickets_machine"]
    assert (index["column_names"], bool(index["unique"])) == (["machine"], True)
    assert any("ready" in str(each) for each in index["dialect_options"].values())
