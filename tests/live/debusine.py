"""Run a real, unmodified Debusine server and its scheduler, on loopback only."""

import json
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, LiteralString

import httpx
import psycopg

from tests.live.inside import Inside
from tests.rigs.loopback import free_ports

DATABASE = "debusine"
OWNER = "debusine-server"
_DATA = "/var/lib/postgresql/fleet-live"
# A copy of the database as Debusine's migrations leave it: what each start begins with.
_FRESH = "debusine_fresh"
_CELERY = ("python3", "-m", "celery", "-A", "debusine.project")
_ONE_AT_A_TIME = ("-l", "INFO", "--concurrency", "1")
_SERVICES = {
    "server": (
        *("gunicorn", "--config=/etc/debusine/server/gunicorn.conf.py"),
        "debusine.project.asgi:application",
    ),
    "celery": (*_CELERY, "worker", *_ONE_AT_A_TIME, "-X", "provisioner,scheduler"),
    "scheduler": (*_CELERY, "worker", *_ONE_AT_A_TIME, "-n", "scheduler@%h", "-Q", "scheduler"),
    "beat": (*_CELERY, "beat", "-l", "INFO", "-s", "/var/lib/debusine/server/fleet-live-beat"),
}
_START_SECONDS = 120
_SETTINGS = Path(__file__).parent / "server"
# Roles are the cluster's and outlive a database.
_ONLY_OWNER = """
SELECT format('DROP ROLE %I', rolname) FROM pg_roles
 WHERE rolname !~ '^pg_' AND rolname NOT IN ('postgres', 'debusine-server') \\gexec
SELECT 'CREATE ROLE "debusine-server" LOGIN'
 WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'debusine-server') \\gexec
"""
# Each command prints and then ends the process.
_RUN_ALL = """
import contextlib, io, json
from django.core.management import call_command

def run(command):
    out = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(out):
        call_command(*command, stdout=out)
    return out.getvalue().strip()

print(json.dumps([run(command) for command in {commands}]))
"""


class Server:
    """A Debusine in a chroot: its web server, scheduler and database."""

    def __init__(self, root: Path, visible: Path) -> None:
        """Prepare to run in `root`; the folder `visible` is seen in there at the same place."""
        self._root = root
        self.http_port, self.sql_port, self.redis_port = free_ports(3)
        settings = {
            "LIVE_BIND": f"127.0.0.1:{self.http_port}",
            "LIVE_REDIS": f"redis://127.0.0.1:{self.redis_port}",
            "LIVE_SQL_HOST": "/run/postgresql",
            "LIVE_SQL_PORT": str(self.sql_port),
            "PGHOST": "/run/postgresql",
            "PGPORT": str(self.sql_port),
        }
        self.inside = Inside(root, visible, settings)
        self._password = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.dsn = self.dsn_of(OWNER, self._password)

    def start(self) -> None:
        """Run everything, with an empty database, and wait until it answers."""
        self.inside.open()
        for name in ("local.py", "gunicorn.conf.local.py"):
            shutil.copyfile(_SETTINGS / name, self._root / "etc/debusine/server" / name)
        self._start_database()
        self._make_database()
        self._start_services()

    def stop(self) -> None:
        """End everything; the database first, in good order, for the next start."""
        try:
            self.inside.stop("database", signal.SIGINT)
        finally:
            self.inside.close()

    @property
    def admin_command(self) -> list[str]:
        """Return the command that is `debusine-admin` as the server's own user."""
        return self.inside.command(OWNER, "debusine-admin")

    def admin(self, *args: str, stdin: str = "") -> str:
        """Run `debusine-admin ARGS` and return what it printed."""
        return self.inside.run(OWNER, "debusine-admin", *args, stdin=stdin)

    def admin_all(self, *commands: Sequence[str]) -> list[str]:
        """Run several commands of debusine-admin in one process, which takes seconds to start."""
        script = _RUN_ALL.format(commands=json.dumps(commands))
        printed = self.admin("shell", "-v0", stdin=script)
        return list(json.loads(printed.splitlines()[-1]))

    def sql(
        self, statement: LiteralString, values: Sequence[object] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement as the database's owner and return its rows."""
        with psycopg.connect(self.dsn, connect_timeout=10, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def superuser_sql(self, text: str) -> str:
        """Run SQL as PostgreSQL's own administrator, and return what psql printed."""
        psql = ("psql", "-v", "ON_ERROR_STOP=1", "-qAtX", DATABASE)
        return self.inside.run("postgres", *psql, stdin=text)

    def dsn_of(self, role: str, password: str) -> str:
        """Return the database's address for a role."""
        return f"postgresql://{role}:{password}@127.0.0.1:{self.sql_port}/{DATABASE}"

    def rest(
        self, method: str, path: str, *, token: str = "", scope: str = "", body: object = None
    ) -> Any:  # noqa: ANN401 - JSON is anything
        """Ask the REST API and return the JSON of its answer."""
        headers = {"Token": token} if token else {}
        headers |= {"X-Debusine-Scope": scope} if scope else {}
        url = f"{self.url}/api/1.0/{path}"
        answer = httpx.request(method, url, headers=headers, json=body, timeout=60)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def upload(self, path: str, content: bytes, *, token: str, scope: str) -> None:
        """Put a file of an artifact where the REST API takes it."""
        headers = {"Token": token, "X-Debusine-Scope": scope}
        url = f"{self.url}/api/1.0/{path}"
        answer = httpx.put(url, headers=headers, content=content, timeout=60)
        assert answer.is_success, f"PUT {path}: {answer.status_code} {answer.text}"

    def _start_database(self) -> None:
        socket_folder = self._root / "run/postgresql"
        socket_folder.mkdir(exist_ok=True)
        socket_folder.chmod(0o1777)
        versions = (self._root / "usr/lib/postgresql").iterdir()
        programs = f"/usr/lib/postgresql/{max(versions, key=lambda each: int(each.name)).name}/bin"
        data = self._root / _DATA.lstrip("/")
        (data / "postmaster.pid").unlink(missing_ok=True)  # of a session that was killed
        if not (data / "PG_VERSION").exists():
            secure = ("--auth-local=peer", "--auth-host=scram-sha-256", "--no-sync")
            self.inside.run("postgres", f"{programs}/initdb", "-D", _DATA, *secure)
        options = ("listen_addresses=127.0.0.1", f"port={self.sql_port}", "fsync=off")
        self.inside.start(
            *("database", "postgres", f"{programs}/postgres", "-D", _DATA),
            *(part for option in options for part in ("-c", option)),
        )
        self._wait_for("database", lambda: self.inside.run("postgres", "pg_isready"))

    def _make_database(self) -> None:
        """Make an empty database, by Debusine's migrations the first time: they take a minute."""
        self.inside.run("postgres", "dropdb", "--force", "--if-exists", DATABASE)
        self._psql(_ONLY_OWNER + f"ALTER ROLE \"{OWNER}\" PASSWORD '{self._password}';")
        if _FRESH not in self._psql("SELECT datname FROM pg_database"):
            self._create_database(DATABASE, template="template0")
            self.admin("migrate", "-v0")
            self._create_database(_FRESH, template=DATABASE)
        else:
            self._create_database(DATABASE, template=_FRESH)

    def _create_database(self, name: str, *, template: str) -> None:
        options = ("-E", "UTF8", "-O", OWNER, "-T", template)
        self.inside.run("postgres", "createdb", *options, name)

    def _psql(self, text: str) -> list[str]:
        psql = ("psql", "-v", "ON_ERROR_STOP=1", "-qAtX", "postgres")
        return self.inside.run("postgres", *psql, stdin=text).split()

    def _start_services(self) -> None:
        loopback = ("--bind", "127.0.0.1", "--port", str(self.redis_port))
        kept_nowhere = ("--save", "", "--appendonly", "no", "--dir", "/tmp")  # noqa: S108 - unused
        self.inside.start("redis", "redis", "redis-server", *loopback, *kept_nowhere)
        ping = ("redis-cli", "-p", str(self.redis_port), "ping")
        self._wait_for("redis", lambda: self.inside.run("redis", *ping))
        for name, command in _SERVICES.items():
            self.inside.start(name, OWNER, *command)
        self._wait_for("server", lambda: self.rest("GET", "service-status/"))
        self._wait_for("scheduler", self._is_scheduling)

    def _is_scheduling(self) -> None:
        """Fail where Debusine's own workers have not connected yet."""
        statement: LiteralString = "SELECT count(*) FROM db_worker WHERE connected_at IS NOT NULL"
        assert self.sql(statement) == [(2,)]

    def _wait_for(self, name: str, is_there: Callable[[], object]) -> None:
        """Wait until a service answers; fails with its log where it does not in time."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                is_there()
            except (AssertionError, httpx.HTTPError, psycopg.Error) as error:
                late = time.monotonic() > deadline
                if late or self.inside.has_ended(name):
                    raise AssertionError(f"{name} did not start\n{self.inside.log()}") from error
                time.sleep(0.2)
            else:
                return
