"""The lock of a fleet: one holds it, and nobody keeps it who has ended."""

import re
import subprocess

import pytest

from fleet.errors import Locked
from fleet.ports.store import Store
from fleet.store.database import DatabaseStore
from fleet.store.holders import name_process
from tests.builders import NOW
from tests.ports.stores import Opener, opener, postgres_store, postgres_url, store

__all__ = ["opener", "postgres_store", "postgres_url", "store"]


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


def test_what_its_holder_has_started_does_not_keep_the_lock(store: Store, opener: Opener) -> None:
    with store.lock("alice@here:1", NOW):
        child = subprocess.Popen(["sleep", "infinity"], close_fds=False)

    try:
        with opener("debian").lock("bob@there:2", NOW) as died:
            assert died is None
    finally:
        child.kill()
        child.wait()


def test_who_was_refused_the_lock_takes_nothing_away(store: Store, opener: Opener) -> None:
    with store.lock("alice@here:1", NOW):
        for _ in range(2):
            with pytest.raises(Locked), opener("debian").lock("bob@there:2", NOW):
                pass


def test_the_lock_of_a_process_that_died_on_this_system_is_taken_over(
    postgres_store: DatabaseStore,
) -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    dead = name_process(process.pid)
    held = postgres_store.lock(dead, NOW)
    held.__enter__()

    with postgres_store.lock("bob@there:2", NOW) as died:
        holder = postgres_store.lock_holder()

    assert died == dead
    assert holder is not None
    assert holder[0] == "bob@there:2"


@pytest.mark.parametrize(
    "living",
    [name_process(), "alice@elsewhere/12345678:1", "alice@here:1"],
    ids=["this", "elsewhere", "unnamed system"],
)
def test_the_lock_of_a_process_that_lives_or_of_another_system_is_not(
    postgres_store: DatabaseStore, living: str
) -> None:
    with (
        postgres_store.lock(living, NOW),
        pytest.raises(Locked, match=re.escape(living)),
        postgres_store.lock("bob@there:2", NOW),
    ):
        pass
