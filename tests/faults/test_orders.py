"""Orders of people: two at once, killed between two writes, by a clock that jumps, run twice."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from fleet.model.log import LogEntry, find_breaks
from fleet.model.orders import Freeze, Order
from fleet.state.storage import sqlite_url
from fleet.state.store import Store
from tests.cli.conftest import idle
from tests.faults.test_clock import RunAt, run_at
from tests.faults.test_log import killed_at
from tests.ports.stores import postgres_url
from tests.rigs.process import RunFleet, clean_environment
from tests.rigs.trial import ONE, TWO, WARM, WHY, Trial, fleet_yaml
from tests.rigs.warm import Warm

__all__ = ["idle", "postgres_url", "run_at"]

APPROVE = ("approve", "delete", "--pool", "builders", "--count", "1", *WHY)
FREEZE, HOLD = ("freeze", "--pool", "builders", *WHY), ("hold", ONE, *WHY)
HOLD_END = ("hold", TWO, "--end")
EMPTY = ("machine", "delete", "--pool", "builders", "--all", "--apply")
Together = Callable[..., Counter[int]]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, project: Path) -> Store:
    """Return the store of a fleet with two idle machines."""
    path = project / ".fleet/store.db"
    written, url = f"sqlite:///{path}", sqlite_url(path)
    if request.param == "postgresql":
        server: str = request.getfixturevalue("postgres_url")
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS trial CASCADE; CREATE SCHEMA trial")
        written = url = f"{server}&options=-csearch_path%3Dtrial"
    trial = Trial(project)
    trial.write(fleet_yaml(pools={"builders": WARM}, more=f"state: {{store: '{written}'}}\n"))
    trial.init()
    trial.wait_for("1", "2")
    trial.apply()
    trial.wait_for()
    return Store(url, "trial")


@pytest.fixture
def together(project: Path, warm: Warm) -> Together:
    """Return a function that runs commands at the same time and counts their exit codes."""

    def run(*commands: tuple[str, ...]) -> Counter[int]:
        environment = clean_environment(project.parent)
        with ExitStack() as stack:
            begun = [
                stack.enter_context(warm.started(*each, cwd=project, env=environment))
                for each in commands
            ]
            said = [each.stderr.read() for each in begun]
            assert "Traceback" not in "".join(said)
            return Counter(each.wait() for each in begun)

    return run


def kinds(store: Store) -> Counter[str]:
    """Return how often each kind of order is in the log, which is whole."""
    assert list(find_breaks(store.log_chain())) == []
    shown = ("freeze", "unfreeze", "hold", "release", "approve")
    return Counter(each.kind for each in store.read_log() if each.kind in shown)


def in_force(store: Store) -> list[str]:
    return [each.order for each in store.orders(datetime.now(UTC))]


# two people at once


def test_concurrent_orders_are_all_active_and_logged(store: Store, together: Together) -> None:
    ended = together(FREEZE, FREEZE, HOLD, HOLD, APPROVE, APPROVE)

    assert ended == {0: 6}
    assert kinds(store) == {"freeze": 2, "hold": 2, "approve": 2}
    assert in_force(store) == ["approve", "approve", "freeze", "hold"]


def test_concurrent_ends_of_an_order_are_logged_once(store: Store, together: Together) -> None:
    together(FREEZE, HOLD)

    unfreeze, release = ("freeze", "--pool", "builders", "--end"), ("hold", ONE, "--end")
    ended = together(unfreeze, unfreeze, release, release, APPROVE)

    assert ended.keys() <= {0, 1}
    assert ended[0] >= 4
    assert kinds(store) == {"freeze": 1, "hold": 1, "approve": 1, "unfreeze": 1, "release": 1}
    assert in_force(store) == ["approve"]


def test_idle_machines_are_deleted_once_when_two_empty_a_pool(
    store: Store, together: Together, project: Path
) -> None:
    together(EMPTY, EMPTY)
    for _ in range(2):
        Trial(project).do(*EMPTY)

    assert Trial(project).machines() == []
    deleted = [each.machine for each in store.read_log() if each.kind == "delete"]
    assert sorted(deleted) == [ONE, TWO]


# killed between two writes


@pytest.mark.slow
@pytest.mark.parametrize("command", [FREEZE, HOLD, APPROVE, ("freeze", "--end"), HOLD_END])
def test_order_is_atomic_when_killed_at_any_write(
    idle: Trial, tmp_path: Path, warm: Warm, command: tuple[str, ...]
) -> None:
    idle.told("freeze", *WHY)
    idle.told("hold", TWO, *WHY)
    before, whole = _shown(idle), _shown(_done(idle, tmp_path / "whole", command))
    for number in (1, 2):
        folder = tmp_path / str(number)
        shutil.copytree(idle.folder, folder)
        moments = killed_at(warm, folder, number, *command)
        assert len(moments) == number
        struck = Trial(folder)
        seen = _shown(struck)
        struck.do(*command)

        assert (seen == before) is (number == 1)
        assert seen in (before, whole)
        assert set(_shown(struck)[0]) == set(whole[0])
    assert len(killed_at(warm, _copy(idle, tmp_path / "all"), 0, *command)) == 2


def _copy(trial: Trial, folder: Path) -> Path:
    shutil.copytree(trial.folder, folder, dirs_exist_ok=True)
    return folder


def _done(trial: Trial, folder: Path, command: tuple[str, ...]) -> Trial:
    done = Trial(_copy(trial, folder))
    done.told(*command)
    return done


def _shown(trial: Trial) -> tuple[list[str], Counter[str]]:
    store = trial.store()
    return in_force(store), kinds(store)


@pytest.mark.kills
@pytest.mark.parametrize("command", [EMPTY, ("machine", "delete", "--since", "1d", "--apply")])
def test_repeated_deletion_finishes_one_killed_at_any_write(
    idle: Trial, tmp_path: Path, warm: Warm, command: tuple[str, ...]
) -> None:
    whole = _copy(idle, tmp_path / "whole")
    moments = killed_at(warm, whole, 0, *command)

    for number in range(1, len(moments) + 1):
        struck = Trial(_copy(idle, tmp_path / str(number)))
        killed_at(warm, struck.folder, number, *command)
        for _ in range(2):
            struck.do(*command)

        assert struck.machines() == [], moments[number - 1]
        kinds(Store(sqlite_url(struck.folder / ".fleet/store.db"), "trial"))


# a clock that jumps


@pytest.mark.slow
@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_orders_use_clock_of_database_server(store: Store, run_at: RunAt) -> None:
    run_at(*FREEZE, days=-1)

    assert in_force(store) == ["freeze"]


# run twice, a store that is not there or locked, a pool that is gone


@pytest.mark.parametrize(
    "command",
    [
        EMPTY,
        ("machine", "delete", "--since", "1d"),
        ("log",),
        ("log", "--verify"),
        ("report", "--month", "2026-10"),
        ("state", "show"),
        ("image", "list"),
        ("image", "build", "trixie"),
        APPROVE,
        FREEZE,
        ("freeze", "--end"),
        HOLD,
        HOLD_END,
    ],
)
def test_commands_without_store_name_command_to_create_it(
    project: Path, run_fleet: RunFleet, command: tuple[str, ...]
) -> None:
    Trial(project)

    ran = run_fleet(*command)

    assert "fleet state init" in ran.stderr
    assert (ran.returncode, ran.stdout) == (4, "")


@pytest.mark.slow
def test_permanently_locked_store_is_reported(idle: Trial, warm: Warm) -> None:
    since = ("machine", "delete", "--since", "1d")
    commands = (FREEZE, ("freeze", "--end"), HOLD, APPROVE, EMPTY, since, ("log",))
    store = idle.folder / ".fleet/store.db"
    environment = clean_environment(idle.folder.parent)
    with closing(sqlite3.connect(store)) as connection, ExitStack() as stack:
        connection.execute("BEGIN EXCLUSIVE")
        begun = [warm.started(*each, cwd=idle.folder, env=environment) for each in commands]
        running = [stack.enter_context(each) for each in begun]
        said = [each.stderr.read() for each in running]
        codes = [each.wait() for each in running]

    assert codes == [1] * len(commands)
    assert [each for each in said if ".fleet/store.db" not in each or "locked" not in each] == []


def a_freeze(**overrides: object) -> Order:
    now = datetime.now(UTC)
    terms = {"by": "ada", "at": now, "until": now + timedelta(hours=1), "reason": "why"}
    return Freeze.model_validate(terms | overrides)


def test_next_order_deletes_orders_that_ended_long_ago(store: Store) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=400)
    over = a_freeze(pool="builders", at=long_ago, until=long_ago + timedelta(hours=1))
    store.place_order(over, LogEntry(at=long_ago, kind="freeze"))

    store.place_order(a_freeze(), LogEntry(at=datetime.now(UTC), kind="freeze"))

    assert len(store.orders(long_ago)) == 1
