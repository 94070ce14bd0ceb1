"""`fleet state unlock`: who holds what since when, and nothing is taken from the living."""

import json
import os
import socket
from pathlib import Path

import pytest

from fleet.ports import StackRecord
from fleet.state.database import name_process
from fleet.state.store import Store
from tests.builders import NOW
from tests.builders.sentences import tells
from tests.ports.stores import postgres_store, postgres_url
from tests.rigs.postgres import end_connections
from tests.rigs.process import a_dead_process
from tests.rigs.trial import BUILDERS, Trial, fleet_yaml

__all__ = ["postgres_store", "postgres_url"]

ELSEWHERE = "ci@runner-3/5d41402a:4711"
STACK = "trial-builders"


@pytest.fixture
def shared(project: Path, postgres_url: str, postgres_store: Store) -> Trial:
    """Return a fleet whose store is in PostgreSQL, where nobody's lock ends with its holder."""
    del postgres_store  # it has emptied the database, and made a store of another fleet
    trial = Trial(project)
    store = f"state: {{store: '{postgres_url}&options=-csearch_path%3Dtrial'}}"
    trial.write(fleet_yaml(pools={"builders": BUILDERS}, more=store))
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS trial CASCADE; CREATE SCHEMA trial")
    trial.init()
    return trial


def store_of(postgres_url: str) -> Store:
    return Store(f"{postgres_url}&options=-csearch_path%3Dtrial", "trial")


def hold_stack(trial: Trial, **overrides: object) -> Path:
    """Have somebody hold the stack of the real engine, as the CLI does."""
    record = StackRecord(
        name=STACK, pool="builders", provider="desk", project="sim", engine="pulumi", serial=1
    )
    trial.store().record_stack(record)
    path = trial.folder / f".fleet/.pulumi/locks/organization/fleet-sim/{STACK}/1.json"
    path.parent.mkdir(parents=True)
    held = {"pid": 1, "username": "ana", "hostname": "elsewhere", "timestamp": "2026-11-21T08:00Z"}
    path.write_text(json.dumps(held | overrides))
    return path


def test_unlock_removes_lock_of_dead_process_of_this_computer(
    shared: Trial, postgres_url: str
) -> None:
    store = store_of(postgres_url)
    with store.lock(ELSEWHERE, NOW):
        end_connections(postgres_url)
        code, said = shared.do("state", "unlock")

        assert store.lock_holder() is None
    assert code == 0
    assert f" by {ELSEWHERE} since {NOW.isoformat()}" in said


def test_unlock_keeps_lock_of_running_process(shared: Trial, postgres_url: str) -> None:
    with store_of(postgres_url).lock(name_process(), NOW):
        code, said = shared.do("state", "unlock", "--holder", name_process())

        assert store_of(postgres_url).lock_holder() == (name_process(), NOW.isoformat())
    assert code == 4
    assert tells(said, "running", "wait")


def test_unlock_removes_stack_lock_of_dead_engine(project_trial: Trial) -> None:
    project_trial.init()
    path = hold_stack(project_trial, pid=a_dead_process(), hostname=socket.gethostname())

    said = project_trial.told("state", "unlock")

    assert tells(said, "removed", STACK, "ana")
    assert not path.exists()


def test_unlock_releases_locks_of_dead_owners_only(project_trial: Trial) -> None:
    project_trial.init()
    path = hold_stack(project_trial, pid=a_dead_process(), hostname=socket.gethostname())
    theirs = path.with_name("2.json")
    theirs.write_text(path.read_text().replace(socket.gethostname(), "elsewhere"))

    said = project_trial.told("state", "unlock", code=4)

    assert tells(said, "removed", STACK, "ana", socket.gethostname())
    assert tells(said, "held", "ana", "elsewhere")
    assert (path.exists(), theirs.exists()) == (False, True)


def test_unlock_keeps_stack_lock_of_this_process(project_trial: Trial) -> None:
    project_trial.init()
    path = hold_stack(project_trial, pid=os.getpid(), hostname=socket.gethostname(), timestamp="")

    said = project_trial.told("state", "unlock", code=4)

    assert tells(said, "running")
    assert path.exists()
