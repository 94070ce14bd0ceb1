"""This module holds a fleet's lock in PostgreSQL, and numbers its holders.

The lock is an advisory one of a transaction that lasts as long as its run: it ends with the
connection, whatever ends that, and a pooler such as pgbouncer leaves a transaction its connection.
A run that has lost its connection does not know; each of its transactions compares the number.

What a driver says of a failure is told in sentences that a person can act on.

Only what runs on the same booted system, in the same namespace of processes, can tell.
"""

import atexit
import getpass
import hashlib
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path

import sqlalchemy as sa

from fleet.errors import Locked, StoreFailed, StoreMissing
from fleet.state import tables
from fleet.state.interrupts import later_interrupts
from fleet.state.places import older_place, sqlite_url
from fleet.state.tables import ABOUT

FENCE = "fence"
"""The key under which the number of the latest lock stands."""
# A server gives up what rests, and what lasts; and it learns late of a computer that is gone.
_SETTLE = sa.text("""\
SELECT set_config(name, value, true)
  FROM pg_settings JOIN (VALUES
       ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'),
       ('tcp_keepalives_idle', '20'), ('tcp_keepalives_interval', '10'),
       ('tcp_keepalives_count', '3')) AS wanted (name, value) USING (name)""")
_TAKE = sa.text(
    "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || :fleet, 0))"
)


class LockingConnection:
    """A connection of its own to PostgreSQL, for a lock."""

    def __init__(self, url: sa.URL) -> None:
        self._engine = sa.create_engine(url, poolclass=sa.NullPool)
        self._connection: sa.Connection | None = None

    def take(self, fleet: str) -> bool:
        """Take a fleet's lock; False where another connection holds it."""
        self._connection = self._engine.connect()
        self._connection.execute(_SETTLE)
        return bool(self._connection.execute(_TAKE, {"fleet": f" {fleet}"}).scalar())

    def close(self) -> None:
        """Give it up."""
        if self._connection is not None:
            with suppress(sa.exc.SQLAlchemyError):  # it is gone, and the lock with it
                self._connection.close()


def next_fence(connection: sa.Connection) -> int:
    """Return the number of a lock that was just taken: no later one has it."""
    same = ABOUT.c.key == FENCE
    number = int(connection.execute(sa.select(ABOUT.c.value).where(same)).scalar() or 0) + 1
    if number == 1:
        connection.execute(sa.insert(ABOUT), [{"key": FENCE, "value": "1"}])
    else:
        connection.execute(sa.update(ABOUT).where(same).values(value=str(number)))
    return number


def is_current(connection: sa.Connection, number: int) -> bool:
    """Say whether nobody took the lock since; nobody can before this transaction has ended."""
    latest = sa.select(ABOUT.c.value).where(ABOUT.c.key == FENCE).with_for_update(read=True)
    return connection.execute(latest).scalar() == str(number)


FORMAT = "fleet-store-1"
_DISK_TROUBLE = ("disk I/O error", "database or disk is full")
_DAMAGE = (
    "file is not a database",
    "database disk image is malformed",
    "Could not decode to UTF-8",
)
_NO_STORE = "state.store is no store: write sqlite, sqlite:///PATH or postgresql://HOST/NAME"


class Database:
    """The database behind one SQLAlchemy URL, for one fleet."""

    def __init__(self, url: str, fleet: str) -> None:
        self.url = _with_driver(url)
        self._fleet = fleet
        self._is_there = False
        self._fence = 0

    @property
    def place(self) -> str:
        """Return where the store is, without credentials, as short as it can be said from here."""
        path = self._file
        if path:
            here = Path(path)
            return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)
        # A server's options may hold secrets too, as `password=`.
        secret = [key for key in self.url.query if "password" in key]
        shown = self.url.difference_update_query(secret)
        return shown.render_as_string(hide_password=True)

    @property
    def _file(self) -> str:
        """Return the file of SQLite; empty beside another database."""
        return self.url.database or "" if self.url.get_backend_name() == "sqlite" else ""

    @contextmanager
    def _checked(self) -> Iterator[sa.Connection]:
        """Begin a transaction in a store that exists, is of this format and of this fleet."""
        path = self._file
        if path and not Path(path).exists():
            self._refuse_older(Path(path))
            raise StoreMissing(self._missing())
        with self._transaction() as connection:
            self._check(connection)
            yield connection

    def _check(self, connection: sa.Connection) -> None:
        # Looking for a table takes longer than reading it.
        if not self._is_there and not sa.inspect(connection).has_table(tables.ABOUT.name):
            raise StoreMissing(self._missing())
        about = dict(connection.execute(sa.select(tables.ABOUT.c.key, tables.ABOUT.c.value)).all())
        if not about:
            # `init` was killed, or its disk was full: SQLite makes tables one by one.
            raise StoreMissing(self._missing())
        if about.get("format") != FORMAT:
            raise StoreFailed(
                f"{self.place} is not a store of this version: {about.get('format')}"
            )
        if about.get("fleet") != self._fleet:
            raise StoreFailed(
                f"{self.place} belongs to fleet {about.get('fleet')}, not {self._fleet}; "
                "give each fleet a store of its own"
            )
        self._is_there = True

    def _refuse_older(self, path: Path) -> None:
        """Raise StoreFailed where this fleet's store is where an older fleet took its path."""
        found = older_place(path)
        if not found:
            return
        older, commands = found
        try:
            with Database(sqlite_url(older), self._fleet)._checked():  # noqa: SLF001 - its own class
                pass
        except (StoreFailed, StoreMissing):
            return  # a file of somebody else
        raise StoreFailed(
            f"there is no store at {self.place}, but this fleet has one at {older}: "
            "earlier versions of fleet decoded %XX in a path and cut it at a ?; with no run under "
            f"way move it: `{commands}`"
            + ("; or leave out of state.store what follows the ?" * ("?" in path.name))
        )

    def _missing(self) -> str:
        return (
            f"there is no store at {self.place}; for a new fleet create it with "
            "`fleet state init`, for an old one restore it first: what it knew is not empty, "
            "it is unknown"
        )

    def _damaged(self, reason: str) -> str:
        return (
            f"the store at {self.place} is damaged: {reason}; restore a backup, or move the file "
            "away and make a new store with `fleet state init`: it will not know pools that are "
            "no longer in fleet.yaml and still hold machines, nor which stacks are lost "
            "(docs/how-to/restore-lost-state.md)"
        )

    @cached_property
    def _engine(self) -> sa.Engine:
        return _make_engine(self.url) if self._file else _pooled_engine(self.url)

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with self._telling():
            connection = self._engine.connect()
            with later_interrupts(), connection, connection.begin():
                if self._fence and not is_current(connection, self._fence):
                    raise Locked(
                        f"this run lost the lock of fleet {self._fleet} to another run and writes "
                        "nothing more; the stacks record its changes, and the next apply continues"
                    )
                yield connection

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Say in a sentence what a driver does not do."""
        try:
            yield
        except ModuleNotFoundError as error:
            raise StoreFailed(
                f"the store at {self.place} needs {error.name}, which is not installed: "
                "install fleet with its extra `postgres`"
            ) from error
        except sa.exc.SQLAlchemyError as error:
            # `orig` is the driver's own sentence; the wrapper repeats SQL and parameters.
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            if reason.startswith(_DAMAGE):
                raise StoreFailed(self._damaged(reason)) from error
            reason += "; is the disk full?" if reason in _DISK_TROUBLE else ""
            raise StoreFailed(f"the store at {self.place} does not answer: {reason}") from error


def _make_engine(url: sa.URL) -> sa.Engine:
    return sa.create_engine(url, poolclass=sa.NullPool)


@cache
def _pooled_engine(url: sa.URL) -> sa.Engine:
    """Return what keeps connections to a server: making one takes longer than most transactions.

    One that the server gave up meanwhile is replaced. The last one used is the next, so that
    those of a busy moment rest until the server gives them up.
    """
    engine = sa.create_engine(
        url,
        pool_pre_ping=True,
        pool_use_lifo=True,
        # A pooler gives each transaction another connection, where nothing is prepared.
        connect_args={"prepare_threshold": None},
    )
    atexit.register(engine.dispose)
    return engine


def _with_driver(url: str) -> sa.URL:
    """Return a URL with the driver that is a dependency, whatever SQLAlchemy's default is."""
    parsed = read_url(url)
    if parsed is None:
        raise StoreFailed(_NO_STORE)
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise StoreFailed(_NO_STORE)
    return parsed


def read_url(text: str) -> sa.URL | None:
    """Return a database's URL; None where it is none, and nothing of it is repeated.

    What a password holds that is not percent-encoded may look like a port, or like a host.
    """
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        return None
    return None if "@" in (url.host or "") else url


_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")


def name_process(pid: int | None = None) -> str:
    """Return how a process of this system is named in a lock; this one where none is given."""
    number = os.getpid() if pid is None else pid
    return f"{name_user()}@{socket.gethostname()}{_system()}:{number}"


def name_user() -> str:
    """Return who runs us, as a login shell says; of a user without a name, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def is_alive(holder: str) -> bool | None:
    """Say whether the process of that name runs; None where nobody here can tell."""
    whose, _, number = holder.rpartition(":")
    if not (_system() and whose.endswith(_system()) and number.isdecimal()):
        return None
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _system() -> str:
    """Return what tells this booted system from every other; empty where nothing does."""
    try:
        said = _BOOT.read_text(encoding="ascii") + str(_PROCESSES.readlink())
    except OSError:
        return ""
    return "/" + hashlib.sha256(said.encode()).hexdigest()[:8]
