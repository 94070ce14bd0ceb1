"""What every Store promises of the log: append-only, one chain, kept for 100 days."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from fleet.model.log import KEPT, LogEntry, Mark, find_breaks, has_mark
from fleet.state.store import Store
from tests.builders import NOW
from tests.builders.log import an_entry
from tests.ports.stores import Opener, opener, postgres_store, postgres_url, store

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


def numbered(count: int, **overrides: object) -> list[LogEntry]:
    return [
        an_entry(at=NOW + timedelta(seconds=number), machine=f"m-{number}", **overrides)
        for number in range(count)
    ]


def breaks(store: Store) -> list[str]:
    return list(find_breaks(store.log_chain()))


def test_log_entries_are_returned_in_order_of_append(store: Store, opener: Opener) -> None:
    assert (store.log_chain(), breaks(store)) == ((Mark(), (), Mark()), [])
    order = LogEntry(at=NOW, kind="freeze", because="bad image", details={"until": "2h"})
    entries = [order, *numbered(3)]
    store.append_log(entries[:1])
    head = store.append_log(entries[1:])

    again = opener("debian")
    assert again.read_log() == tuple(entries)
    assert again.read_log(NOW + timedelta(seconds=1)) == tuple(entries[2:])
    assert (head.number, again.log_chain().head, again.append_log([])) == (4, head, head)
    assert breaks(again) == []


def test_entries_older_than_retention_leave_an_anchor(store: Store) -> None:
    store.append_log(numbered(2))
    noted = store.log_chain()
    late = [an_entry(at=NOW + KEPT + timedelta(days=1), machine=name) for name in ("x", "y")]
    store.append_log(late[:1])
    assert len(store.read_log()) == 3  # the clock of one run may be wrong

    store.append_log(late[1:])

    chain = store.log_chain()
    assert (chain.anchor, [each.machine for each in store.read_log()]) == (noted.head, ["x", "y"])
    assert breaks(store) == []
    assert [has_mark(chain, each) for each in (noted.head, noted.links[0].mark)] == [True, None]


def test_clock_jump_removes_no_log_entries(store: Store) -> None:
    store.append_log(numbered(2))
    store.append_log([an_entry(at=NOW + 3 * KEPT)])
    store.append_log([an_entry(at=NOW + timedelta(minutes=1))])

    assert len(store.read_log()) == 4
    assert breaks(store) == []


@pytest.fixture
def sqlite(tmp_path: Path) -> Store:
    """Return a store in a file that others can write too."""
    store = Store(f"sqlite:///{tmp_path}/store.db", "debian")
    store.init()
    return store


@pytest.fixture(params=["sqlite", "postgres_store"])
def database(request: pytest.FixtureRequest) -> Store:
    """Return a store in a database that others can write too."""
    store: Store = request.getfixturevalue(request.param)
    return store


def change(store: Store, statement: str) -> None:
    with store.begin() as connection:
        connection.execute(sa.text(statement))


def test_concurrent_appends_form_one_chain(database: Store) -> None:
    def append(name: str) -> None:
        for number in range(5):
            database.append_log([an_entry(machine=f"{name}-{number}")] * 2)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(append, "abcd"))

    assert database.log_chain().head.number == len(database.read_log()) == 40
    assert breaks(database) == []


def test_log_append_succeeds_while_another_holds_the_lock(database: Store) -> None:
    other = Store(database.url.render_as_string(hide_password=False), "debian")
    with database.lock("me", NOW):
        database.append_log(numbered(1))
        other.append_log(numbered(1))
        database.append_log(numbered(1))

    assert database.log_chain().head.number == 3
    assert breaks(database) == []


@pytest.mark.parametrize(
    "statement",
    [
        "delete from fleet_log where place = 1",
        "delete from fleet_log where place = 2",
        "delete from fleet_log where place = 4",
        "delete from fleet_log where place in (2, 3)",
        "delete from fleet_log",
        "update fleet_log set entry = replace(entry, 'm-1', 'm-9')",
        "update fleet_log set at = '2026-01-01T00:00:00+00:00' where place = 2",
        "update fleet_log set entry = (select max(entry) from fleet_log) where place = 2",
        "update fleet_log set entry = '{' where place = 4",
        "update fleet_log set digest = 'x' where place = 4",
        "update fleet_log set place = 9 where place = 4",
        "insert into fleet_log select 5, at, entry, digest from fleet_log where place = 4",
        "delete from fleet_about where key = 'log'",
        "update fleet_log set place = case place when 1 then -2 when 2 then -1 else place end",
    ],
)
def test_tampering_breaks_the_chain(sqlite: Store, statement: str) -> None:
    sqlite.append_log(numbered(4))
    change(sqlite, statement)

    assert breaks(sqlite) != []
    if "fleet_about" not in statement:  # nothing was taken out: it goes on from the last entry
        sqlite.append_log(numbered(1))
        assert breaks(sqlite) != []
