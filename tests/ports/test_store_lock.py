"""The lock of a fleet: one holds it, and nobody keeps it who has ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from fleet.errors import Locked
from fleet.state.store import Store
from tests.builders import NOW
from tests.ports.stores import Opener, opener, postgres_store, postgres_url, store
from tests.rigs import pgbouncer
from tests.rigs.postgres import end_connections

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


def test_locked_error_names_owner_and_time(store: Store, opener: Opener) -> None:
    with store.lock("alice@here:1", NOW):
        for _ in range(2):
            with (
                pytest.raises(Locked, match=r"alice@here:1, since 2026-11-21.08:00:00"),
                opener("debian").lock("bob@there:2", NOW),
            ):
                pass


def test_lock_is_free_after_any_end_of_its_holder(store: Store, opener: Opener) -> None:
    with pytest.raises(KeyboardInterrupt), store.lock("alice@here:1", NOW):  # noqa: PT012 - it holds the lock
        # It outlives its parent, and does not keep the lock.
        child = subprocess.Popen(["sleep", "infinity"], close_fds=False)
        raise KeyboardInterrupt

    try:
        with opener("debian").lock("bob@there:2", NOW) as died:
            assert died is None
    finally:
        child.kill()
        child.wait()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return where a store was made."""
    if request.param == "postgresql":
        request.getfixturevalue("postgres_store")
        return str(request.getfixturevalue("postgres_url"))
    path = f"sqlite:///{tmp_path}/store.db"
    Store(path, "debian").init()
    return path


def test_lock_of_a_killed_process_is_taken_over(url: str) -> None:
    kill_holder(url, "alice@elsewhere:1")
    store = Store(url, "debian")

    with store.lock("bob@there:2", NOW) as died:
        holder = store.lock_holder()

    assert died == "alice@elsewhere:1"
    assert holder is not None
    assert holder[0] == "bob@there:2"


def test_writes_fail_after_lock_was_lost_to_another(
    postgres_store: Store, postgres_url: str
) -> None:
    other = Store(postgres_url, "debian")
    with pytest.raises(Locked), postgres_store.lock("alice@here:1", NOW):  # noqa: PT012 - it is lost within
        postgres_store.begin_run(started=NOW)
        end_connections(postgres_url)
        with other.lock("bob@there:2", NOW) as died:
            assert died == "alice@here:1"
            try:
                postgres_store.spend("approval", ["machine"])
            finally:
                assert other.spent() == {}
                assert other.lock_holder() == ("bob@there:2", NOW.isoformat())

    postgres_store.spend("approval", ["machine"])
    assert postgres_store.lock_holder() is None


def test_writes_continue_after_lock_connection_was_lost(
    postgres_store: Store, postgres_url: str
) -> None:
    with postgres_store.lock("alice@here:1", NOW):
        end_connections(postgres_url)
        postgres_store.spend("approval", ["machine"])

    assert postgres_store.spent() == {"approval": ("machine",)}


@pytest.mark.skipif(pgbouncer.program() is None, reason="NOT TESTED: pgbouncer is not installed")
def test_lock_is_exclusive_through_a_connection_pooler(
    postgres_store: Store, postgres_url: str
) -> None:
    with pgbouncer.pooled(postgres_url, "fleet") as url:
        one, other = (Store(url, "debian") for _ in range(2))
        with one.lock("alice@here:1", NOW):
            for number in range(10):  # more often than a driver prepares a statement
                one.spend("approval", [f"machine-{number}"])
                with pytest.raises(Locked), other.lock("bob@there:2", NOW):
                    pass
            with pytest.raises(Locked), postgres_store.lock("carol@there:3", NOW):
                pass
        with other.lock("bob@there:2", NOW) as died:
            assert died is None


def kill_holder(url: str, owner: str) -> None:
    """Have a process that holds the lock of fleet debian be killed."""
    script = (
        "import sys, datetime; from fleet.state.store import Store\n"
        "with Store(sys.argv[1], 'debian').lock(sys.argv[2], datetime.datetime.now()):\n"
        "    print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, url, owner]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.kill()
