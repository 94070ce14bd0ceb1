"""This module runs a trial fleet at the simulated Hetzner: real engine, real provider, Debusine.

Each trial begins alike: one worker is registered and busy, and two more requests wait.
"""

import copy
import json
import os
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
from typing import Any

import psycopg

from fleet.service.hetzner import SimulatedHetzner
from fleet.service.hetzner_project import Project
from fleet.service.hetzner_wire import Request
from fleet.user_data import read_user_data
from tests.debusine_tables import RequestRow, Tables
from tests.ports.engines import family_of
from tests.ports.registries import DebusinePlace, a_channel
from tests.process import ROOT, Completed, clean_environment, fleet_command

BUSY, TWO, THREE = (f"trial-builders-{number}" for number in (1, 2, 3))
FLEET = """\
fleet: trial
state: {passphrase: {env: PASSPHRASE}}
providers:
  far: {kind: hcloud, location: fsn1, token: {env: HCLOUD_TOKEN}}
queues:
  debian:
    kind: debusine
    url: http://127.0.0.1:9
    scopes: [debian]
    read: {env: DSN}
    admin: {dsn: {env: DSN}}
images:
  sid:
    architecture: amd64
    existing: {far: debian-13}
    provides: ["worker:task:worker:noop:version:1"]
pools:
  builders:
    {provider: far, machine: {type: [ccx33, ccx43]}, image: sid, workers: {max: 3}}
"""


@dataclass
class HetznerTrial:
    """A fleet, its project at Hetzner, its queue."""

    folder: Path
    api: SimulatedHetzner
    place: DebusinePlace
    url: str
    """Of the server that has the queue's database."""
    database: str
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        found = ("FLEET_PULUMI", "FLEET_PULUMI_PLUGINS", "XDG_CACHE_HOME")
        said = {
            "HCLOUD_ENDPOINT": self.api.endpoint,
            "HCLOUD_TOKEN": self.api.token,
            "PASSPHRASE": "made up",
            "DSN": dsn_of(self.url, self.database),
        }
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
        process = self.begin(*args)
        said, noted = process.communicate(timeout=300)
        return subprocess.CompletedProcess(args, process.returncode, said, noted)

    def killed_at(self, moment: str, ordinal: int = 1) -> bool:
        """Apply, and kill it with all that it started at a moment; False: it never came."""
        killed: list[str] = []
        seen = 0

        def watch(when: str, request: Request) -> None:
            nonlocal seen
            if moment != moment_of(when, request):
                return
            seen += 1
            if seen == ordinal and not killed:
                killed.append(moment)
                for each in family_of(process.pid):
                    os.kill(each, signal.SIGKILL)
                process.wait()
                if when == "asked":
                    # It died before it had asked: what it was about to ask for is not done.
                    raise ConnectionAbortedError

        self.api.watch = watch
        process = self.begin("apply")
        process.communicate(timeout=300)
        self.api.watch = lambda _, __: None
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

    def servers(self) -> list[str]:
        """Return the names of the servers that exist, sorted."""
        return sorted(each["name"] for each in self.api.state.servers.values())

    def id_of(self, name: str) -> int:
        """Return the id of the server of this name; 0: there is none."""
        servers = self.api.state.servers.items()
        return next((number for number, each in servers if each["name"] == name), 0)

    def as_beginning(self) -> "Beginning":
        """Return this trial, once it is over, as what others begin with."""
        return Beginning(self.folder, copy.deepcopy(self.api.state), self.url, self.database)

    def be_late(self, *names: str) -> None:
        """Have servers be so old that their workers should have registered."""
        made = (datetime.now(UTC) - timedelta(minutes=58)).isoformat(timespec="seconds")
        for server in self.api.state.servers.values():
            if server["name"] in names:
                server["created"] = made

    def age(self) -> None:
        """Have every try to make a machine be long ago."""
        with closing(sqlite3.connect(self.folder / ".fleet/store.db")) as connection, connection:
            connection.execute("delete from fleet_attempts")

    def wrongs(self) -> list[str]:
        """Return everything that must not be, whatever has happened."""
        world = json.loads(self.fleet("observe").stdout)
        recorded = {
            name: number
            for stack in world["stacks"].values()
            for name, number in stack["ids"].items()
        }
        exist = {each["name"]: str(number) for number, each in self.api.state.servers.items()}
        wrong = [f"orphan: {name}" for name in exist.keys() - recorded.keys()]
        wrong += [f"only recorded: {name}" for name in recorded.keys() - exist.keys()]
        wrong += [f"id: {name}" for name in exist if recorded.get(name, "") != exist[name]]
        wrong += [f"leaked token: {name}" for name in self._leaked()]
        wrong += ["interrupted" for stack in world["stacks"].values() if stack.get("interrupted")]
        return wrong

    def _leaked(self) -> Iterator[str]:
        """Yield who is awaited with a token that no server of that name was given."""
        given = {
            each["name"]: _token(self.api.state.user_data[number])
            for number, each in self.api.state.servers.items()
        }
        awaited = self.place.ask(
            "SELECT w.name, t.hash FROM db_worker w JOIN db_token t ON t.id ="
            " w.activation_token_id WHERE t.enabled AND t.expire_at > now()"
        )
        for name, digest in awaited:
            if sha256(given.get(name, "").encode()).hexdigest() != digest:
                yield name


def moment_of(when: str, request: Request) -> str:
    """Return the name of a moment, the same in every run."""
    words = ["ID" if each.isdecimal() else each for each in request.path.split("/")]
    return f"{when} {request.method} {'/'.join(words)}"


def _token(user_data: str) -> str:
    files = read_user_data(user_data).files
    return next(each.content for each in files if each.path.endswith("activation-token"))


def dsn_of(url: str, database: str) -> str:
    """Return the address of a database beside the one that is always there."""
    return url.replace("/postgres?", f"/{database}?")


@dataclass(frozen=True)
class Beginning:
    """What trials begin with: kept once, copied for each."""

    folder: Path
    state: Project
    url: str
    database: str

    @contextmanager
    def trial(self, folder: Path) -> Iterator[HetznerTrial]:
        """Open a trial of its own."""
        name = f"trial_{sha256(str(folder).encode()).hexdigest()[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {self.database}".encode())
        shutil.copytree(self.folder, folder)
        with _open(folder, self.url, name) as trial:
            trial.api.state = copy.deepcopy(self.state)
            yield trial


@contextmanager
def _open(folder: Path, url: str, database: str) -> Iterator[HetznerTrial]:
    dsn = dsn_of(url, database)
    with psycopg.connect(dsn, autocommit=True) as connection, SimulatedHetzner() as api:
        place = DebusinePlace(Tables(connection), a_channel("sql", dsn))
        yield HetznerTrial(folder, api, place, url, database)


def begin(folder: Path, url: str) -> Beginning:
    """Make what every trial begins with, by an apply that nothing disturbs."""
    folder.mkdir()
    (folder / "home").mkdir()
    (folder / "fleet.yaml").write_text(FLEET, encoding="utf-8")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE beginning")
    with _open(folder, url, "beginning") as trial:
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


def come_up(trial: HetznerTrial, name: str) -> None:
    """Have a server's worker register, and say what it can do."""
    (number,) = (key for key, each in trial.api.state.servers.items() if each["name"] == name)
    assert trial.place.register(name, _token(trial.api.state.user_data[number]))
    told: dict[str, Any] = {"provided_tags": ["worker:task:worker:noop:version:1"]}
    trial.place.ask(
        "UPDATE db_worker SET dynamic_metadata = %s::jsonb, dynamic_metadata_updated_at = now()"
        " WHERE name = %s",
        json.dumps(told),
        name,
    )
