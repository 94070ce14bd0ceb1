"""Run a trial fleet at a simulated cloud: real engine, and a Debusine's database.

Each trial begins alike: one worker is registered and busy, and two more requests wait.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, TypeVar

import psycopg

from fleet.model.user_data import read_user_data
from tests.faults.clouds import Cloud
from tests.ports.engines import kill_family
from tests.ports.registries import DebusinePlace, a_channel
from tests.rigs import postgres
from tests.rigs.debusine_tables import RequestRow, Tables
from tests.rigs.process import ROOT, Completed, clean_environment, fleet_command
from tests.rigs.warm import Warm

BUSY, TWO, THREE = (f"trial-builders-{number:04}" for number in (1, 2, 3))
C = TypeVar("C", bound=Cloud)


def fleet_yaml(cloud: type[Cloud]) -> str:
    """Return the fleet.yaml of a trial at a cloud."""
    return f"""\
fleet: trial
money: {{currency: EUR, exchange: {{USD: {{rate: 0.92, as_of: 2026-11-01}}}}}}
state: {{passphrase: {{env: PASSPHRASE}}}}
providers:
  far: {cloud.provider}
queues:
  debian:
    kind: debusine
    url: http://127.0.0.1:9
    scopes: [debian]
    read: {{env: DSN}}
    admin: {{dsn: {{env: DSN}}}}
images:
  sid:
    architecture: amd64
    existing: {{far: {cloud.image}}}
    provides: ["worker:task:worker:noop:version:1"]
pools:
  builders: {{provider: far, machine: {cloud.machine}, image: sid, workers: {{max: 3}}}}
"""


@dataclass
class CloudTrial(Generic[C]):
    """A fleet, its cloud, its queue."""

    folder: Path
    cloud: C
    place: DebusinePlace
    url: str
    """Of the server that has the queue's database."""
    database: str
    warm: Warm
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = ("FLEET_PULUMI", "XDG_CACHE_HOME")
        said = {"PASSPHRASE": "made up", "DSN": dsn_of(self.url, self.database)}
        said |= self.cloud.environment(self.folder)
        said |= {name: os.environ[name] for name in found if name in os.environ}
        self.environment = clean_environment(self.folder / "home", said)

    def begin(self, *args: str, by: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start the program."""
        return subprocess.Popen(
            [*(by or fleet_command()), *args],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def fleet(self, *args: str) -> Completed:
        """Run the program to its end."""
        return self.warm.run(*args, cwd=self.folder, env=self.environment)

    def killed_at(self, moment: str, ordinal: int = 1) -> bool:
        """Apply, and kill it with all that it started at a moment; False: it never came."""
        killed: list[str] = []
        seen = 0

        def watch(now: str) -> None:
            nonlocal seen
            if moment != now:
                return
            seen += 1
            if seen == ordinal and not killed:
                killed.append(moment)
                kill_family(process.pid)
                process.wait()
                if now.startswith("asked"):
                    # It died before it had asked: what it was about to ask for is not done.
                    raise ConnectionAbortedError

        self.cloud.watch = watch
        process = self.begin("apply")
        process.communicate(timeout=300)
        self.cloud.watch = lambda _: None
        return bool(killed)

    def commits(self, last: int = 0) -> list[str]:
        """Apply, and kill it with all that it started at a moment of its own; return those seen.

        0: at none. See tests.faults.mortal_fleet.
        """
        file = self.folder / "moments"
        named = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); "
        named += "runpy.run_module('tests.faults.mortal_fleet', run_name='__main__')"
        mortal = (sys.executable, "-c", named, str(file), str(last))
        process = self.begin("apply", by=mortal)
        _, noted = process.communicate(timeout=300)
        assert process.returncode == (-signal.SIGKILL if last else 0), noted
        return file.read_text(encoding="utf-8").splitlines()

    def keep_stacks_behind(self, host: Path) -> None:
        """Have stacks be in the queue's database, reached by the socket in this folder."""
        file = self.folder / "fleet.yaml"
        backend = f"postgres://fleet@/{self.database}?host={host}&sslmode=disable"
        said = f"state: {{passphrase: {{env: PASSPHRASE}}, backend: '{backend}'}}"
        text = re.sub("^state: .*$", said, file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        file.write_text(text, encoding="utf-8")
        if self.place.ask("SELECT 1 FROM pg_tables WHERE tablename = 'pulumi_state'"):
            # Each key begins with the database's name, and a copy has another.
            moved = "UPDATE pulumi_state SET key = %s || substr(key, strpos(key, '/'))"
            self.place.ask(moved, self.database)

    def machines(self) -> list[str]:
        """Return the names of the machines that exist, sorted."""
        return [name for name, _ in self.cloud.machines()]

    def id_of(self, name: str) -> str:
        """Return the id of the machine of this name; empty: there is none."""
        return dict(self.cloud.machines()).get(name, "")

    def as_beginning(self) -> "Beginning[C]":
        """Return this trial, once it is over, as what others begin with."""
        contents = self.cloud.contents()
        found = (self.url, self.database, self.warm)
        return Beginning(type(self.cloud), self.folder, contents, *found)

    def make_two_to_go(self) -> None:
        """Make the two machines that are asked for, and have no one want them any more."""
        assert self.fleet("apply").returncode == 0
        self.place.ask("DELETE FROM db_workrequest WHERE id > 1")
        self.be_late(TWO, THREE)

    def be_late(self, *names: str) -> None:
        """Have machines be so old that their workers should have registered."""
        self.cloud.date(datetime.now(UTC) - timedelta(minutes=58), *names)

    def age(self) -> None:
        """Have every try to make a machine be long ago."""
        with closing(sqlite3.connect(self.folder / ".fleet/store.db")) as connection, connection:
            connection.execute("delete from fleet_attempts")

    def wrongs(self) -> list[str]:
        """Return everything that must not be, whatever has happened."""
        observed = self.fleet("observe")
        assert observed.returncode == 0, observed
        world = json.loads(observed.stdout)
        recorded = {
            name: number
            for stack in world["stacks"].values()
            for name, number in stack["ids"].items()
        }
        machines = self.cloud.machines()
        exist = dict(machines)
        wrong = [f"double: {name}" for name in exist if self.machines().count(name) > 1]
        wrong += [f"orphan: {name}" for name in exist.keys() - recorded.keys()]
        wrong += [f"only recorded: {name}" for name in recorded.keys() - exist.keys()]
        wrong += [f"id: {name}" for name in exist if recorded.get(name, "") != exist[name]]
        wrong += [f"leaked token: {name}" for name in self._leaked()]
        wrong += ["interrupted" for stack in world["stacks"].values() if stack.get("interrupted")]
        return wrong

    def _leaked(self) -> Iterator[str]:
        """Yield who is awaited with a token that no machine of that name was given."""
        given = {name: _token(self.cloud.given(name)) for name in self.machines()}
        awaited = self.place.ask(
            "SELECT w.name, t.hash FROM db_worker w JOIN db_token t ON t.id ="
            " w.activation_token_id WHERE t.enabled AND t.expire_at > now()"
        )
        for name, digest in awaited:
            if sha256(given.get(name, "").encode()).hexdigest() != digest:
                yield name


def _token(user_data: str) -> str:
    files = read_user_data(user_data).files
    return next(each.content for each in files if each.path.endswith("activation-token"))


def host_of(url: str) -> Path:
    """Return the folder of the socket that an address names."""
    return Path(url.partition("host=")[2])


def dsn_of(url: str, database: str) -> str:
    """Return the address of a database beside the one that is always there."""
    return postgres.named(url, database)


@dataclass(frozen=True)
class Beginning(Generic[C]):
    """What trials begin with: kept once, copied for each."""

    kind: type[C]
    folder: Path
    contents: object
    url: str
    database: str
    warm: Warm

    @contextmanager
    def trial(self, folder: Path) -> Iterator[CloudTrial[C]]:
        """Open a trial of its own."""
        name = f"trial_{sha256(str(folder).encode()).hexdigest()[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {self.database}".encode())
        shutil.copytree(self.folder, folder)
        with _open(self.kind, folder, self.url, name, self.warm) as trial:
            trial.cloud.fill(self.contents)
            yield trial

    def with_two_to_go(self, folder: Path) -> "Beginning[C]":
        """Return a beginning where two more were made, and are to be deleted by the next apply."""
        with self.trial(folder) as trial:
            trial.make_two_to_go()
            return trial.as_beginning()


@contextmanager
def _open(
    kind: type[C], folder: Path, url: str, database: str, warm: Warm
) -> Iterator[CloudTrial[C]]:
    dsn = dsn_of(url, database)
    with psycopg.connect(dsn, autocommit=True) as connection, kind() as cloud:
        place = DebusinePlace(Tables(connection), a_channel("sql", dsn))
        yield CloudTrial(folder, cloud, place, url, database, warm)


def begin(kind: type[C], folder: Path, url: str, warm: Warm, *, backend: str = "") -> Beginning[C]:
    """Make what every trial begins with, by an apply that nothing disturbs.

    Its stacks are in files, or in its queue's own database where that is its backend.
    """
    folder.mkdir()
    (folder / "home").mkdir()
    (folder / "fleet.yaml").write_text(fleet_yaml(kind), encoding="utf-8")
    name = f"beginning_{folder.name}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    with _open(kind, folder, url, name, warm) as trial:
        if backend == "postgres":
            trial.keep_stacks_behind(host_of(url))
        tables = trial.place.tables
        tables.create()
        tables.add_requests([RequestRow(id=1)])
        for words in (("state", "init"), ("apply",)):
            done = trial.fleet(*words)
            assert done.returncode == 0, done
        come_up(trial, BUSY)
        trial.place.ask(
            "UPDATE db_workrequest SET status = 'running', started_at = now(),"
            " worker_id = (SELECT id FROM db_worker WHERE name = %s)",
            BUSY,
        )
        tables.add_requests([RequestRow(id=2), RequestRow(id=3)])
        return trial.as_beginning()


def come_up(trial: CloudTrial[C], name: str) -> None:
    """Have a machine's worker register, and say what it can do."""
    assert trial.place.register(name, _token(trial.cloud.given(name)))
    told: dict[str, Any] = {"provided_tags": ["worker:task:worker:noop:version:1"]}
    trial.place.ask(
        "UPDATE db_worker SET dynamic_metadata = %s::jsonb, dynamic_metadata_updated_at = now()"
        " WHERE name = %s",
        json.dumps(told),
        name,
    )
