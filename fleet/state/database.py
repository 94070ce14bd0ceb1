"""The database of the store: its tables, connections and locks, and a dump of all rows."""

import atexit
import fcntl
import getpass
import hashlib
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from fleet.errors import Locked, StoreFailed, StoreMissing, needing, touching
from fleet.state.confined import announce_connection
from fleet.state.processes import later_interrupts
from fleet.state.storage import older_store, sqlite_url


def key_columns(*names: str) -> list[sa.Column[str]]:
    """Return text columns with these names, which together are the primary key."""
    return [sa.Column(name, sa.Text, primary_key=True) for name in names]


def not_null_columns(
    kind: type[sa.Text | sa.Integer], *names: str, default: str | None = None
) -> list[sa.Column[Any]]:
    """Return columns of one type that are never NULL. Older rows get the value `default`."""
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


# `ended` is empty until a run ends. A ledger row is one hour of one payer (JSON: currency,
# pool, scope, team, owner, tags). Money is an integer in billionths, so that the database adds
# it exactly. The payer of a machine is JSON too (the same keys, package, since). A sample is
# the summary of one run's observation (JSON: figures of the fleet and of each pool); a moment
# is the complete observation (packed by fleet/state/moments.py). A log entry is JSON without its
# time; its digest covers the entry, its time and the previous digest. In tickets, an empty time
# and a lease of 0 mean None; a machine has at most one ready ticket.
METADATA = sa.MetaData()
ABOUT = sa.Table("fleet_about", METADATA, *key_columns("key"), *not_null_columns(sa.Text, "value"))
STACKS = sa.Table(
    "fleet_stacks",
    METADATA,
    *key_columns("name"),
    *not_null_columns(sa.Text, "pool", "provider", "project", "engine"),
    *not_null_columns(sa.BigInteger, "serial"),
)
RUNS = sa.Table(
    "fleet_runs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    *not_null_columns(sa.Text, "started", "ended", "plan", "outcome"),
)
SAMPLES = sa.Table(
    "fleet_samples", METADATA, *key_columns("at"), *not_null_columns(sa.Text, "sample")
)
MOMENTS = sa.Table(
    "fleet_moments",
    METADATA,
    *key_columns("at"),
    sa.Column("first", sa.Text, nullable=False, index=True),
    *not_null_columns(sa.Text, "world"),
)
LOG = sa.Table(
    "fleet_log",
    METADATA,
    sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
    *not_null_columns(sa.Text, "at", "entry", "digest"),
)
MONTHS = sa.Table(
    "fleet_months",
    METADATA,
    *key_columns("month", "kind", "name"),
    *not_null_columns(sa.BigInteger, "count", "seconds", "nanos"),
)
LEDGER = sa.Table(
    "fleet_ledger",
    METADATA,
    *key_columns("hour", "payer"),
    *not_null_columns(sa.BigInteger, "seconds", "nanos"),
)
PAYERS = sa.Table(
    "fleet_payers", METADATA, *key_columns("machine"), *not_null_columns(sa.Text, "pool", "payer")
)
ATTEMPTS = sa.Table(
    "fleet_attempts",
    METADATA,
    *key_columns("worker", "at"),
    *not_null_columns(sa.Text, "pool", "type", "market", "image", "result", "detail"),
)
ORDERS = sa.Table(
    "fleet_orders",
    METADATA,
    *key_columns("key"),
    *not_null_columns(sa.Text, "until", "order", "console"),
)
SPENT = sa.Table("fleet_spent", METADATA, *key_columns("approval", "machine"))
IMAGES = sa.Table(
    "fleet_images",
    METADATA,
    *key_columns("image", "version"),
    *not_null_columns(sa.Text, "record"),
)
MANIFESTS = sa.Table(
    "fleet_manifests",
    METADATA,
    *key_columns("image", "version"),
    *not_null_columns(sa.Text, "manifest"),
)
LOCK = sa.Table(
    "fleet_lock",
    METADATA,
    sa.Column("one", sa.Integer, primary_key=True),
    *not_null_columns(sa.Text, "owner", "since"),
)
TICKETS = sa.Table(
    "fleet_tickets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    *not_null_columns(sa.Text, "queue", "state", "tags", "opened_at", "heard_at"),
    *not_null_columns(sa.Text, "submitter", "owner", "team", "sandbox"),
    *not_null_columns(sa.Integer, "priority", "background", "lease"),
    *not_null_columns(sa.Text, "machine", "answer", "because", "ended_at"),
    *not_null_columns(sa.Text, "client", "project", "chroot", "package", default=""),
    *not_null_columns(sa.Text, "granted", default="null"),
    *not_null_columns(sa.Text, "note", "ready_at", default=""),
    *not_null_columns(sa.Integer, "built", default="0"),
)
sa.Index("fleet_tickets_open", TICKETS.c.queue, TICKETS.c.state, TICKETS.c.submitter)
sa.event.listen(
    TICKETS,
    "after_create",
    # `sa.Index` with a WHERE clause loads the dialects of all databases, which slows each start.
    sa.DDL(  # type: ignore[no-untyped-call] # it has no types
        "CREATE UNIQUE INDEX fleet_tickets_machine ON fleet_tickets (machine) "
        "WHERE state = 'ready'"
    ),
)
TENANCIES = sa.Table(
    "fleet_tenancies",
    METADATA,
    *key_columns("machine"),
    *not_null_columns(sa.Text, "since", "pool", "sandbox"),
    *not_null_columns(sa.Integer, "uses"),
    *not_null_columns(sa.Text, "first_used"),
    *not_null_columns(sa.Integer, "draining", "disabled"),
    *not_null_columns(sa.Integer, "dirty", default="0"),
)


@contextmanager
def reading_rows(table: sa.Table, key: str = "") -> Iterator[None]:
    """Raise StoreFailed if the body meets a malformed value in a table, or in the row of a key."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        lines = [line.strip() for line in str(error).splitlines() if "errors.pydantic" not in line]
        reason = "; ".join(lines[:3])
        row = f"an unreadable row {key!r}" if key else "an unreadable row"
        raise StoreFailed(
            f"table {table.name} of the store has {row}: {reason}; another release "
            "of fleet or another program wrote it, or the disk is damaged: restore a backup, or "
            "delete the row by hand (docs/how-to/restore-lost-state.md)"
        ) from error


_MIGRATION_LOCK_ID = 0x666C656574
"""Id of the advisory lock for migrations: an arbitrary number that few programs use."""


def create_tables(connection: sa.Connection) -> None:
    """Create all tables and columns that the store lacks, atomically.

    Call this first in a transaction. It waits for other commands that create tables.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK_ID)))
    else:
        # The driver starts no transaction before a CREATE statement.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    for table in METADATA.sorted_tables:
        table.create(connection, checkfirst=True)
        there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in there:
                written = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {written}"))
    write_about(connection, ABOUT_COLUMNS)


_LATER_TABLES = frozenset({SAMPLES, MOMENTS, LOG, MONTHS, PAYERS, ORDERS})
"""Tables that later versions added: an older store lacks them. Others are never missing."""


def _find_missing(connection: sa.Connection) -> dict[str, bool]:
    """Map each table that lacks columns of this version to whether it is missing."""
    inspector = sa.inspect(connection)
    there = {
        name: {column["name"] for column in inspector.get_columns(name)}
        for name in inspector.get_table_names()
    }
    return {
        table.name: table.name not in there
        for table in METADATA.sorted_tables
        if not {column.name for column in table.columns} <= there.get(table.name, set())
    }


def replace_rows(
    connection: sa.Connection, table: sa.Table, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Insert rows. A row with an existing key replaces the old row."""
    names = [column.name for column in table.primary_key]
    new = {tuple(row[name] for name in names): row for row in rows}
    if new:
        same = [table.c[name] == sa.bindparam(f"old_{name}") for name in names]
        old = [{f"old_{name}": row[name] for name in names} for row in new.values()]
        connection.execute(sa.delete(table).where(*same), old)
        connection.execute(sa.insert(table), [*new.values()])


def read_value(connection: sa.Connection, key: str) -> str | None:
    """Return the value of a key in the table `about`; None if the key is missing."""
    query = sa.select(ABOUT.c.value).where(ABOUT.c.key == key)
    return connection.execute(query).scalar()


def read_number(connection: sa.Connection, key: str) -> int:
    """Return the number under a key; 0 if missing. Raises StoreFailed for other text."""
    found = read_value(connection, key)
    with reading_rows(ABOUT):
        return int(found) if found is not None else 0


def read_about(connection: sa.Connection, prefix: str) -> dict[str, str]:
    """Map keys that start with this prefix, without the prefix, to their values."""
    query = sa.select(ABOUT.c.key, ABOUT.c.value).where(ABOUT.c.key.startswith(prefix))
    return {key.removeprefix(prefix): value for key, value in connection.execute(query)}


def write_about(
    connection: sa.Connection, values: Mapping[str, str], drop: Iterable[str] = ()
) -> None:
    """Set the values of these keys in the table `about`, and remove the keys in `drop`."""
    connection.execute(sa.delete(ABOUT).where(ABOUT.c.key.in_({*values, *drop})))
    if values:
        add_about(connection, values)


def add_about(connection: sa.Connection, values: Mapping[str, str]) -> None:
    """Insert new keys and values. If a key exists, the database refuses all of them."""
    rows = [{"key": key, "value": value} for key, value in values.items()]
    connection.execute(sa.insert(ABOUT), rows)


CREATED_KEY = "made"
"""Key of the store's creation time. It is missing if an older version created the store."""
TICKETS_AFTER_KEY = "tickets-after"
"""Key of the highest reserved ticket id. If it is missing, ids start at 1."""
FENCE_KEY = "fence"
"""Key of the fencing token: the number of the latest lock."""
# Each transaction executes these two statements; to build one takes longer than to execute it.
_SELECT_FENCE = sa.select(ABOUT.c.value).where(ABOUT.c.key == FENCE_KEY).with_for_update(read=True)
_SELECT_ABOUT = sa.select(ABOUT.c.key, ABOUT.c.value)
# Disable the server's time-outs for idle transactions, and detect a lost client early.
_SET_TIMEOUTS = sa.text("""\
SELECT set_config(name, value, true)
  FROM pg_settings JOIN (VALUES
       ('idle_in_transaction_session_timeout', '0'), ('transaction_timeout', '0'),
       ('tcp_keepalives_idle', '20'), ('tcp_keepalives_interval', '10'),
       ('tcp_keepalives_count', '3')) AS wanted (name, value) USING (name)""")
_TRY_LOCK = sa.text(
    "SELECT pg_try_advisory_xact_lock(hashtextextended(current_schema() || :fleet, 0))"
)


@contextmanager
def hold_lock_file(path: str) -> Iterator[bool]:
    """Hold a file lock while the process lives. Yield False if another process holds it."""
    with touching(f"{path} cannot be written", StoreFailed):
        file = open(path, "ab", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - Path.open takes no mode
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@contextmanager
def hold_server_lock(url: sa.URL, fleet: str) -> Iterator[bool]:
    """Hold a fleet's lock on a separate connection to PostgreSQL. Yield False if it is taken.

    The lock is an advisory lock of a transaction that lasts for the whole run. The lock ends with
    the connection; a pooler such as pgbouncer keeps a transaction on one connection. A run does
    not notice the loss of this connection, so each of its transactions compares the lock's number.
    """
    limit = {"connect_timeout": _time_to_connect(url)}
    engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args=limit)
    connection = _add_audit_events(engine).connect()
    try:
        connection.execute(_SET_TIMEOUTS)
        yield bool(connection.execute(_TRY_LOCK, {"fleet": f" {fleet}"}).scalar())
    finally:
        with suppress(sa.exc.SQLAlchemyError):  # the connection is lost, so the lock is released
            connection.close()


def next_fence(connection: sa.Connection) -> int:
    """Return the number of the lock just acquired: a fencing token that only increases."""
    same = ABOUT.c.key == FENCE_KEY
    number = read_number(connection, FENCE_KEY) + 1
    if number == 1:
        add_about(connection, {FENCE_KEY: "1"})
    else:
        connection.execute(sa.update(ABOUT).where(same).values(value=str(number)))
    return number


def is_current(connection: sa.Connection, number: int) -> bool:
    """Return whether this lock is the latest. A new lock waits until this transaction ends."""
    return connection.execute(_SELECT_FENCE).scalar() == str(number)


FORMAT = "fleet-store-2"
_READABLE_FORMATS = ("fleet-store-1", FORMAT)
"""Formats that this version reads. The first format has no orders of operators."""
_MIN_RELEASE = "0.2.0"
"""Lowest release of fleet that reads `FORMAT`."""
ABOUT_FORMAT: Mapping[str, str] = MappingProxyType({"format": FORMAT, "needs": _MIN_RELEASE})
"""Rows that make older versions refuse the store, because they would ignore parts of it."""
_COLUMNS_KEY = "columns"
_COLUMNS = sum(len(table.columns) for table in METADATA.sorted_tables)
"""Number of columns of all tables. It only grows, because no version removes a column."""
ABOUT_COLUMNS: Mapping[str, str] = MappingProxyType({_COLUMNS_KEY: str(_COLUMNS)})
"""Row that marks a store with all tables and columns of this version."""
_DISK_TROUBLE = ("disk I/O error", "database or disk is full")
_DAMAGE = (
    "file is not a database",
    "database disk image is malformed",
    "Could not decode to UTF-8",
    "no such table",
    "no such column",
    "has no column named",
)
_DAMAGE_STATES = frozenset({"42P01", "42703"})
"""PostgreSQL's error codes for a missing table and a missing column."""


class Database:
    """The database at an SQLAlchemy URL, with the store of one fleet."""

    def __init__(self, url: str, fleet: str) -> None:
        self.url = sa.make_url(url)
        self._scheme = self.url.drivername
        """Scheme of the URL as fleet.yaml has it, without the name of the driver."""
        if self._scheme.startswith("postgres"):
            self.url = self.url.set(drivername="postgresql+psycopg")
        self._fleet = fleet
        self._exists = False
        self._is_counted = False
        """Whether the store records that it has all columns of this version."""
        self._fence = 0

    @property
    def address(self) -> str:
        """Return the store's location without credentials; relative if in the current folder."""
        path = self._file
        if path:
            here = Path(path)
            return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)
        # Options of a server's URL may contain secrets, for example `password=`.
        secret = [key for key in self.url.query if "password" in key]
        shown = self.url.difference_update_query(secret).set(drivername=self._scheme)
        return shown.render_as_string(hide_password=True)

    @property
    def _file(self) -> str:
        """Return the path of the SQLite file; empty for PostgreSQL."""
        return self.url.database or "" if self.url.get_backend_name() == "sqlite" else ""

    @contextmanager
    def begin(self) -> Iterator[sa.Connection]:
        """Start a transaction in the fleet's store; raises StoreMissing or StoreFailed."""
        path = self._file
        if path and not Path(path).exists():
            self._refuse_older(Path(path))
            raise StoreMissing(self._missing_message())
        with self._transaction() as connection:
            self._check(connection)
            yield connection

    def _check(self, connection: sa.Connection) -> None:
        # To check for a table takes longer than to read it.
        if not self._exists and not sa.inspect(connection).has_table(ABOUT.name):
            raise StoreMissing(self._missing_message())
        about = dict(connection.execute(_SELECT_ABOUT).all())
        if not about:
            # `init` was killed, or the disk was full: SQLite creates tables one by one.
            raise StoreMissing(self._missing_message())
        if about.get("format") not in _READABLE_FORMATS:
            raise StoreFailed(self._newer_message(about))
        if about.get("fleet") != self._fleet:
            raise StoreFailed(
                f"{self.address} belongs to fleet {about.get('fleet')}, not {self._fleet}; "
                "give each fleet a store of its own"
            )
        self._exists = True
        with reading_rows(ABOUT):
            self._is_counted = int(about.get(_COLUMNS_KEY, "0")) >= _COLUMNS
        # A complete store is not written to: it may be read-only.
        missing = {} if self._is_counted else _find_missing(connection)
        later = _LATER_TABLES - ({ORDERS} if about["format"] == FORMAT else set())
        lost = {n for n, is_gone in missing.items() if is_gone} - {table.name for table in later}
        if lost:
            raise StoreFailed(self._damaged_message(f"no table {', '.join(sorted(lost))}"))
        if missing:
            try:
                create_tables(connection)
            except sa.exc.SQLAlchemyError as error:
                raise StoreFailed(
                    f"the store at {self.address} lacks tables of this version of fleet, and this "
                    f"user cannot create them ({_reason_of(error)}); run one command as a user "
                    "who can"
                ) from error

    def _refuse_older(self, path: Path) -> None:
        """Raise StoreFailed if an older version left the store at another path."""
        found = older_store(path)
        if not found:
            return
        older, commands = found
        try:
            with Database(sqlite_url(older), self._fleet).begin():
                pass
        except (StoreFailed, StoreMissing):
            return  # another file, or the store of another fleet
        raise StoreFailed(
            f"there is no store at {self.address}, but this fleet has one at {older}: "
            "earlier versions of fleet decoded %XX in a path and cut it at a ?; with no run under "
            f"way move it: `{commands}`"
            + ("; or leave out of state.store what follows the ?" * ("?" in path.name)),
            fix=commands,
        )

    def _missing_message(self) -> str:
        return (
            f"there is no store at {self.address}; restore the backup of a lost store "
            f"({StoreMissing.page}); only for a new fleet: `fleet state init`"
        )

    def _newer_message(self, about: Mapping[str, str]) -> str:
        needs = f"fleet {about['needs']} or later" if "needs" in about else "a later fleet"
        ours = version("fleet-reconciler")
        return (
            f"the store at {self.address} is of format {about.get('format')} and needs {needs}; "
            f"this is fleet {ours}, which would ignore parts of it: install {needs}"
        )

    def _damaged_message(self, reason: str) -> str:
        return (
            f"the store at {self.address} is damaged: {reason}; restore a backup, or move the "
            "file away and create a new store with `fleet state init`; a new store lacks the "
            "pools that fleet.yaml no longer has but that still have machines, and the lost "
            "stacks (docs/how-to/restore-lost-state.md)"
        )

    def _connect(self) -> sa.Connection:
        if self._file:
            return connect_file(self.url)
        with needing("postgres", f"the store at {self.address}", StoreFailed):
            return _pooled_engine(self.url).connect()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        with self._translating_errors():
            connection = self._connect()
            with later_interrupts(), connection, connection.begin():
                if self._fence and not is_current(connection, self._fence):
                    raise Locked(
                        f"this run lost the lock of fleet {self._fleet} to another run and writes "
                        "nothing more; the stacks record its changes, and the next apply continues"
                    )
                yield connection

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        """Raise errors of the database driver as StoreFailed, with a message of one sentence."""
        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            reason = _reason_of(error)
            state = getattr(getattr(error, "orig", None), "sqlstate", None)
            if any(sign in reason for sign in _DAMAGE) or state in _DAMAGE_STATES:
                raise StoreFailed(self._damaged_message(reason)) from error
            reason += "; is the disk full?" if reason in _DISK_TROUBLE else ""
            raise StoreFailed(f"the store at {self.address} does not answer: {reason}") from error


def _reason_of(error: sa.exc.SQLAlchemyError) -> str:
    """Return the first line of the driver's own message. SQLAlchemy's message repeats SQL."""
    return str(getattr(error, "orig", None) or error).splitlines()[0]


_SQLITE_URL: ContextVar[sa.URL] = ContextVar("opened")
"""URL of the SQLite file that is being opened."""


def connect_file(url: sa.URL) -> sa.Connection:
    """Open an SQLite file. Create the file if it is missing."""
    opened = _SQLITE_URL.set(url)
    try:
        return _sqlite_engine().connect()
    finally:
        _SQLITE_URL.reset(opened)


@cache
def _sqlite_engine() -> sa.Engine:
    """Return one engine for all SQLite files, so that a process compiles each statement once.

    An engine caches compiled statements. Compiling takes longer than most statements run.
    """
    engine = sa.create_engine("sqlite://", poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "do_connect")
    def opened(dialect: sa.Dialect, *_: object) -> object:
        positional, named = dialect.create_connect_args(_SQLITE_URL.get())
        return dialect.connect(*positional, **named)

    return engine


_CONNECT_SECONDS = 10
"""Seconds to connect to PostgreSQL. The driver waits 130 s, and a plan connects several times."""


def _time_to_connect(url: sa.URL) -> int | str | tuple[str, ...]:
    """Return the seconds that a connection may take: of the URL, the environment, or fleet."""
    stated = url.query.get("connect_timeout") or os.environ.get("PGCONNECT_TIMEOUT")
    return stated or _CONNECT_SECONDS


@cache
def _pooled_engine(url: sa.URL) -> sa.Engine:
    """Return an engine with a connection pool. Connecting takes longer than most transactions.

    The pool replaces connections that the server closed. It reuses the last used connection first,
    so that surplus connections stay idle until the server closes them.
    """
    engine = sa.create_engine(
        url,
        pool_pre_ping=True,
        pool_use_lifo=True,
        # With a pooler, each transaction may use another connection, without prepared statements.
        connect_args={"prepare_threshold": None, "connect_timeout": _time_to_connect(url)},
    )
    atexit.register(engine.dispose)
    return _add_audit_events(engine)


def _add_audit_events(engine: sa.Engine) -> sa.Engine:
    """Make the engine raise an audit event before each connection."""

    @sa.event.listens_for(engine, "do_connect")
    def announce(*_: object) -> None:
        announce_connection(engine.url.render_as_string(hide_password=True))

    return engine


_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE_FILE = Path("/proc/self/ns/pid")


def name_process() -> str:
    """Return a name of this process (user, host, system, id), to record as owner of a lock."""
    return f"{name_user()}@{socket.gethostname()}{_system_id()}:{os.getpid()}"


def name_user() -> str:
    """Return the user's login name; the user id if the user has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def is_alive(holder: str) -> bool | None:
    """Return whether the named process runs; None if that is unknown, as on another computer."""
    whose, _, number = holder.rpartition(":")
    if not (_system_id() and whose.endswith(_system_id()) and number.isdecimal()):
        return None
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _system_id() -> str:
    """Return an id of the current boot and PID namespace; empty if unknown."""
    try:
        said = _BOOT_ID_FILE.read_text(encoding="ascii") + str(_PID_NAMESPACE_FILE.readlink())
    except OSError:
        return ""
    return "/" + hashlib.sha256(said.encode()).hexdigest()[:8]


Begin = Callable[[], AbstractContextManager[sa.Connection]]
"""Function that starts a transaction in the store."""
Cell = str | int
Rows = Mapping[str, Sequence[Mapping[str, Cell]]]
"""Map of table names to rows, without the lock and without rows about the store itself."""

_TABLES = {
    table.name.removeprefix("fleet_"): table
    for table in METADATA.sorted_tables
    if table not in (ABOUT, LOCK)
}
_UNDUMPED_KEYS = (
    "format",
    "needs",
    "fleet",
    CREATED_KEY,
    TICKETS_AFTER_KEY,
    FENCE_KEY,
    _COLUMNS_KEY,
)


def read_rows(connection: sa.Connection) -> Rows:
    """Return the rows of all tables, sorted by primary key."""
    rows = {name: _read_table(connection, table) for name, table in _TABLES.items()}
    about = [row for row in _read_table(connection, ABOUT) if row["key"] not in _UNDUMPED_KEYS]
    return {"about": about, **rows}


def write_rows(connection: sa.Connection, rows: Rows) -> None:
    """Insert all rows. The tables must exist and be empty."""
    for name, table in {"about": ABOUT, **_TABLES}.items():
        if rows.get(name):
            connection.execute(sa.insert(table), [dict(row) for row in rows[name]])


def find_invalid_row(rows: Rows) -> str:
    """Return the path and the problem of the first invalid row; empty if all are valid."""
    tables = {"about": ABOUT, **_TABLES}
    for name, found in rows.items():
        if name not in tables:
            return f"store.{name}: a store has no such table; it has {', '.join(sorted(tables))}"
        columns = _column_types(tables[name])
        for number, row in enumerate(found):
            where = f"store.{name}[{number}]"
            if row.keys() != columns.keys():
                return f"{where}: expected exactly {', '.join(sorted(columns))}"
            for key, value in row.items():
                if type(value) is not columns[key]:
                    return f"{where}.{key}: expected {columns[key].__name__}"
    return ""


def complete(rows: Rows) -> dict[str, list[dict[str, Cell]]]:
    """Return the rows with defaults for columns that a dump of an older version lacks.

    Rows on the store itself are left out, because an older version dumps those it does not know.
    """
    defaults: dict[str, dict[str, Cell]] = {
        name: {
            column.name: column.type.python_type(default.arg)
            for column in table.columns
            if isinstance(default := column.server_default, sa.DefaultClause)
        }
        for name, table in _TABLES.items()
    }
    return {
        name: [
            defaults.get(name, {}) | dict(row)
            for row in found
            if name != "about" or row.get("key") not in _UNDUMPED_KEYS
        ]
        for name, found in rows.items()
    }


def _read_table(connection: sa.Connection, table: sa.Table) -> list[dict[str, Cell]]:
    columns = [table.c[name] for name in _column_types(table)]
    query = sa.select(*columns).order_by(*table.primary_key.columns)
    return [dict(row) for row in connection.execute(query).mappings()]


def _column_types(table: sa.Table) -> dict[str, type]:
    """Map dumped columns to types. Run numbers are left out, because they are assigned again."""
    return {
        column.name: column.type.python_type for column in table.columns if column.name != "number"
    }
