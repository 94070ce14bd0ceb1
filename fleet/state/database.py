"""The store's database: its tables, connections and locks, and a dump of all rows."""

import atexit
import getpass
import hashlib
import os
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from fleet.errors import Locked, StoreFailed, StoreMissing, needing
from fleet.state.confined import announce_connection
from fleet.state.processes import later_interrupts
from fleet.state.storage import older_store, sqlite_url


def keys(*names: str) -> list[sa.Column[str]]:
    """Return columns of text that together name a row."""
    return [sa.Column(name, sa.Text, primary_key=True) for name in names]


def filled(
    kind: type[sa.Text | sa.Integer], *names: str, default: str | None = None
) -> list[sa.Column[Any]]:
    """Return columns of one kind that are never NULL; `default` fills rows of an older fleet."""
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names]


# `ended` is empty in a run that has not ended. A row of the ledger is one hour of one payer (JSON:
# currency, pool, scope, team, owner, tags); money is counted in billionths, so that the database
# adds it up exactly. The payer of a machine is JSON too (the same, package, since). A sample is
# what one run observed (JSON: figures of the fleet and of each pool), a moment all of it (packed
# by fleet/state/moments.py). An entry of the log is JSON without its time; its digest is over both
# and the one before it. Of tickets, an empty time and a lease of 0 stand for none; two tickets are
# never ready with one machine.
METADATA = sa.MetaData()
ABOUT = sa.Table("fleet_about", METADATA, *keys("key"), *filled(sa.Text, "value"))
STACKS = sa.Table(
    "fleet_stacks",
    METADATA,
    *keys("name"),
    *filled(sa.Text, "pool", "provider", "project", "engine"),
    *filled(sa.BigInteger, "serial"),
)
RUNS = sa.Table(
    "fleet_runs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    *filled(sa.Text, "started", "ended", "plan", "outcome"),
)
SAMPLES = sa.Table("fleet_samples", METADATA, *keys("at"), *filled(sa.Text, "sample"))
MOMENTS = sa.Table(
    "fleet_moments",
    METADATA,
    *keys("at"),
    sa.Column("first", sa.Text, nullable=False, index=True),
    *filled(sa.Text, "world"),
)
LOG = sa.Table(
    "fleet_log",
    METADATA,
    sa.Column("place", sa.BigInteger, primary_key=True, autoincrement=False),
    *filled(sa.Text, "at", "entry", "digest"),
)
MONTHS = sa.Table(
    "fleet_months",
    METADATA,
    *keys("month", "kind", "name"),
    *filled(sa.BigInteger, "count", "seconds", "nanos"),
)
LEDGER = sa.Table(
    "fleet_ledger",
    METADATA,
    *keys("hour", "payer"),
    *filled(sa.BigInteger, "seconds", "nanos"),
)
PAYERS = sa.Table("fleet_payers", METADATA, *keys("machine"), *filled(sa.Text, "pool", "payer"))
ATTEMPTS = sa.Table(
    "fleet_attempts",
    METADATA,
    *keys("worker", "at"),
    *filled(sa.Text, "pool", "type", "market", "image", "result", "detail"),
)
ORDERS = sa.Table(
    "fleet_orders",
    METADATA,
    *keys("key"),
    *filled(sa.Text, "until", "order", "console"),
)
SPENT = sa.Table("fleet_spent", METADATA, *keys("approval", "machine"))
IMAGES = sa.Table("fleet_images", METADATA, *keys("image", "version"), *filled(sa.Text, "record"))
MANIFESTS = sa.Table(
    "fleet_manifests",
    METADATA,
    *keys("image", "version"),
    *filled(sa.Text, "manifest"),
)
LOCK = sa.Table(
    "fleet_lock",
    METADATA,
    sa.Column("one", sa.Integer, primary_key=True),
    *filled(sa.Text, "owner", "since"),
)
TICKETS = sa.Table(
    "fleet_tickets",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    *filled(sa.Text, "queue", "state", "tags", "opened_at", "heard_at"),
    *filled(sa.Text, "submitter", "owner", "team", "sandbox"),
    *filled(sa.Integer, "priority", "background", "lease"),
    *filled(sa.Text, "machine", "answer", "because", "ended_at"),
    *filled(sa.Text, "client", "project", "chroot", "package", default=""),
    *filled(sa.Text, "granted", default="null"),
    *filled(sa.Text, "note", "ready_at", default=""),
    *filled(sa.Integer, "built", default="0"),
)
sa.Index("fleet_tickets_open", TICKETS.c.queue, TICKETS.c.state, TICKETS.c.submitter)
sa.event.listen(
    TICKETS,
    "after_create",
    # A `sa.Index` with a WHERE loads every database's dialect: each start would pay for it.
    sa.DDL(  # type: ignore[no-untyped-call] # it has no types
        "CREATE UNIQUE INDEX fleet_tickets_machine ON fleet_tickets (machine) "
        "WHERE state = 'ready'"
    ),
)
TENANCIES = sa.Table(
    "fleet_tenancies",
    METADATA,
    *keys("machine"),
    *filled(sa.Text, "since", "pool", "sandbox"),
    *filled(sa.Integer, "uses"),
    *filled(sa.Text, "first_used"),
    *filled(sa.Integer, "draining", "disabled"),
    *filled(sa.Integer, "dirty", default="0"),
)


@contextmanager
def rows_of(table: sa.Table) -> Iterator[None]:
    """Read rows of a table; StoreFailed names it where a value is none that fleet writes."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = "; ".join(line.strip() for line in str(error).splitlines()[:3])
        raise StoreFailed(
            f"table {table.name} of the store has an unreadable row: {reason}; another program "
            "wrote it, or the disk is damaged: restore a backup, or delete the row by hand "
            "(docs/how-to/restore-lost-state.md)"
        ) from error


_LOCK = 0x666C656574
"""The number of the server's lock for this: any that others are unlikely to take."""


def make_tables(connection: sa.Connection, tables: Collection[sa.Table]) -> None:
    """Make the tables that are not there, and add the columns that an older fleet's lack."""
    if connection.dialect.name == "postgresql" and any(_lacking(connection, tables)):
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    for table, columns in _lacking(connection, tables):
        table.create(connection, checkfirst=True)
        for column in columns:
            written = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
            connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {written}"))


def _lacking(
    connection: sa.Connection, tables: Collection[sa.Table]
) -> Iterator[tuple[sa.Table, list[sa.Column[object]]]]:
    """Yield the tables that lack something; no columns: the whole table."""
    for table in tables:
        seen = sa.inspect(connection)
        if not seen.has_table(table.name):
            yield table, []
            continue
        there = {column["name"] for column in seen.get_columns(table.name)}
        if columns := [column for column in table.columns if column.name not in there]:
            yield table, columns


def find_migration(connection: sa.Connection) -> Iterator[str]:
    """Yield what would be made of a store that an older fleet made."""
    for table, columns in _lacking(connection, METADATA.sorted_tables):
        added = ", ".join(column.name for column in columns)
        yield f"table {table.name}: add {added}" if columns else f"table {table.name}: create"
    form = value_of(connection, "format")
    if form != FORMAT:
        yield f"format {form} becomes {FORMAT}: fleet before {_NEEDS} then refuses the store"


def found_in(
    connection: sa.Connection, table: sa.Table, query: "sa.Select[*tuple[Any, ...]]"
) -> "sa.CursorResult[*tuple[Any, ...]]":
    """Return what a query finds; nothing where a store of an older fleet lacks its table."""
    nothing = sa.select(sa.null()).where(sa.false())
    return connection.execute(query if sa.inspect(connection).has_table(table.name) else nothing)


def value_of(connection: sa.Connection, key: str) -> str | None:
    """Return what stands under a key; None: nothing does."""
    query = sa.select(ABOUT.c.value).where(ABOUT.c.key == key)
    return connection.execute(query).scalar()


def number_of(connection: sa.Connection, key: str) -> int:
    """Return the number under a key; 0 if there is none, StoreFailed if the value is no number."""
    found = value_of(connection, key)
    with rows_of(ABOUT):
        return int(found) if found is not None else 0


def read_about(connection: sa.Connection, prefix: str) -> dict[str, str]:
    """Return what stands under the keys that begin so, by the rest of each key."""
    query = sa.select(ABOUT.c.key, ABOUT.c.value).where(ABOUT.c.key.startswith(prefix))
    return {key.removeprefix(prefix): value for key, value in connection.execute(query)}


def write_about(
    connection: sa.Connection, values: Mapping[str, str], drop: Iterable[str] = ()
) -> None:
    """Write values under their keys, in place of what stands there and under those to drop."""
    connection.execute(sa.delete(ABOUT).where(ABOUT.c.key.in_({*values, *drop})))
    if values:
        add_about(connection, values)


def add_about(connection: sa.Connection, values: Mapping[str, str]) -> None:
    """Write values under keys that are new; where one is not, the database refuses all."""
    rows = [{"key": key, "value": value} for key, value in values.items()]
    connection.execute(sa.insert(ABOUT), rows)


MADE = "made"
"""The key under which stands when the store was created, empty; an older fleet wrote none."""
TICKETS_AFTER = "tickets-after"
"""The key of the id after which ticket ids start; an older fleet wrote none and starts at 1."""
FENCE = "fence"
"""The key under which the number of the latest lock stands."""
# Each transaction reads these two; to build a statement takes longer than to run it.
_LATEST = sa.select(ABOUT.c.value).where(ABOUT.c.key == FENCE).with_for_update(read=True)
_ABOUT = sa.select(ABOUT.c.key, ABOUT.c.value)
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
    """A connection of its own to PostgreSQL, for a fleet's lock.

    It is an advisory lock of a transaction that lasts as long as its run: it ends with the
    connection, and a pooler such as pgbouncer leaves a transaction its connection. A run that has
    lost its connection does not know; each of its transactions compares the lock's number.
    """

    def __init__(self, url: sa.URL) -> None:
        self._engine = _announced(sa.create_engine(url, poolclass=sa.NullPool))
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
    number = number_of(connection, FENCE) + 1
    if number == 1:
        add_about(connection, {FENCE: "1"})
    else:
        connection.execute(sa.update(ABOUT).where(same).values(value=str(number)))
    return number


def is_current(connection: sa.Connection, number: int) -> bool:
    """Say whether the lock was not taken since; it cannot be before this transaction ends."""
    return connection.execute(_LATEST).scalar() == str(number)


FORMAT = "fleet-store-2"
_READABLE = ("fleet-store-1", FORMAT)
"""Of the first one lacks the orders of operators, which an older fleet would not obey."""
_NEEDS = "0.2.0"
"""The first release that reads `FORMAT`."""
ABOUT_FORMAT: Mapping[str, str] = MappingProxyType({"format": FORMAT, "needs": _NEEDS})
"""What has older fleets refuse a store: they would not obey what stands in it."""
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
    def address(self) -> str:
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
    def begin(self) -> Iterator[sa.Connection]:
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
        if not self._is_there and not sa.inspect(connection).has_table(ABOUT.name):
            raise StoreMissing(self._missing())
        about = dict(connection.execute(_ABOUT).all())
        if not about:
            # `init` was killed, or its disk was full: SQLite makes tables one by one.
            raise StoreMissing(self._missing())
        if about.get("format") not in _READABLE:
            raise StoreFailed(self._newer(about))
        if about.get("fleet") != self._fleet:
            raise StoreFailed(
                f"{self.address} belongs to fleet {about.get('fleet')}, not {self._fleet}; "
                "give each fleet a store of its own"
            )
        self._is_there = True

    def _refuse_older(self, path: Path) -> None:
        """Raise StoreFailed where this fleet's store is where an older fleet took its path."""
        found = older_store(path)
        if not found:
            return
        older, commands = found
        try:
            with Database(sqlite_url(older), self._fleet).begin():
                pass
        except (StoreFailed, StoreMissing):
            return  # a file of somebody else
        raise StoreFailed(
            f"there is no store at {self.address}, but this fleet has one at {older}: "
            "earlier versions of fleet decoded %XX in a path and cut it at a ?; with no run under "
            f"way move it: `{commands}`"
            + ("; or leave out of state.store what follows the ?" * ("?" in path.name))
        )

    def _missing(self) -> str:
        return (
            f"there is no store at {self.address}; for a new fleet create one with "
            "`fleet state init`, for an existing fleet restore the old one"
        )

    def _newer(self, about: Mapping[str, str]) -> str:
        needs = f"fleet {about['needs']} or later" if "needs" in about else "a later fleet"
        ours = version("fleet-reconciler")
        return (
            f"the store at {self.address} is of format {about.get('format')} and needs {needs}; "
            f"this is fleet {ours}, which would not obey all that stands in it: install {needs}"
        )

    def _damaged(self, reason: str) -> str:
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
        with self._telling():
            connection = self._connect()
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
        except sa.exc.SQLAlchemyError as error:
            # `orig` is the driver's own sentence; the wrapper repeats SQL and parameters.
            reason = str(getattr(error, "orig", None) or error).splitlines()[0]
            if reason.startswith(_DAMAGE):
                raise StoreFailed(self._damaged(reason)) from error
            reason += "; is the disk full?" if reason in _DISK_TROUBLE else ""
            raise StoreFailed(f"the store at {self.address} does not answer: {reason}") from error


_OPENED: ContextVar[sa.URL] = ContextVar("opened")
"""The file of SQLite that is being opened."""


def connect_file(url: sa.URL) -> sa.Connection:
    """Open a file of SQLite, creating it where there is none."""
    opened = _OPENED.set(url)
    try:
        return _files_engine().connect()
    finally:
        _OPENED.reset(opened)


@cache
def _files_engine() -> sa.Engine:
    """Return what opens every file of SQLite: so each statement is compiled once a process.

    An engine keeps what it compiled to itself, and to compile takes longer than most statements.
    """
    engine = sa.create_engine("sqlite://", poolclass=sa.NullPool)

    @sa.event.listens_for(engine, "do_connect")
    def opened(dialect: sa.Dialect, *_: object) -> object:
        positional, named = dialect.create_connect_args(_OPENED.get())
        return dialect.connect(*positional, **named)

    return engine


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
    return _announced(engine)


def _announced(engine: sa.Engine) -> sa.Engine:
    """Return an engine of a server, each of whose connections raises an audit event first."""

    @sa.event.listens_for(engine, "do_connect")
    def announce(*_: object) -> None:
        announce_connection(engine.url.render_as_string(hide_password=True))

    return engine


def _with_driver(url: str) -> sa.URL:
    """Return a URL with the driver that is a dependency, whatever SQLAlchemy's default is."""
    parsed = _read_url(url)
    if parsed is None:
        raise StoreFailed(_NO_STORE)
    if parsed.drivername in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "postgresql+psycopg"):
        raise StoreFailed(_NO_STORE)
    return parsed


def _read_url(text: str) -> sa.URL | None:
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


def name_process() -> str:
    """Return how this process is named in a lock."""
    return f"{name_user()}@{socket.gethostname()}{_system()}:{os.getpid()}"


def name_user() -> str:
    """Return who runs us, as a login shell says; of a user without a name, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def is_alive(holder: str) -> bool | None:
    """Say whether the process of that name runs; None: unknown here."""
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


Cell = str | int
Rows = Mapping[str, Sequence[Mapping[str, Cell]]]
"""Table to its rows; the lock, and what says whose store it is, are left out."""

_TABLES = {
    "stacks": STACKS,
    "runs": RUNS,
    "samples": SAMPLES,
    "moments": MOMENTS,
    "log": LOG,
    "months": MONTHS,
    "ledger": LEDGER,
    "payers": PAYERS,
    "attempts": ATTEMPTS,
    "orders": ORDERS,
    "spent": SPENT,
    "images": IMAGES,
    "manifests": MANIFESTS,
    "tickets": TICKETS,
    "tenancies": TENANCIES,
}
_OWN = ("format", "needs", "fleet", MADE, TICKETS_AFTER, FENCE)


def read_rows(connection: sa.Connection) -> Rows:
    """Return every row, in an order of its own; what an older store lacks is as it was then."""
    there = set(sa.inspect(connection).get_table_names())
    rows = {
        name: _rows_of(connection, table) if table.name in there else []
        for name, table in _TABLES.items()
    }
    about = [row for row in _rows_of(connection, ABOUT) if row["key"] not in _OWN]
    return {"about": about, **rows}


def write_rows(connection: sa.Connection, rows: Rows) -> None:
    """Insert all rows into tables that are there and empty."""
    for name, table in {"about": ABOUT, **_TABLES}.items():
        if rows.get(name):
            connection.execute(sa.insert(table), [dict(row) for row in rows[name]])


def find_mistake(rows: Rows) -> str:
    """Return what is no row of a store, and where; empty where all are."""
    tables = {"about": ABOUT, **_TABLES}
    for name, found in rows.items():
        if name not in tables:
            return f"store.{name}: a store has no such table; it has {', '.join(sorted(tables))}"
        columns = _columns(tables[name])
        for number, row in enumerate(found):
            where = f"store.{name}[{number}]"
            if row.keys() != columns.keys():
                return f"{where}: expected exactly {', '.join(sorted(columns))}"
            for key, value in row.items():
                if type(value) is not columns[key]:
                    return f"{where}.{key}: expected {columns[key].__name__}"
    return ""


def complete(rows: Rows) -> dict[str, list[dict[str, Cell]]]:
    """Return rows with what those of an older fleet lack."""
    return {
        name: [(_defaults(_TABLES[name]) if name in _TABLES else {}) | dict(row) for row in found]
        for name, found in rows.items()
    }


def _rows_of(connection: sa.Connection, table: sa.Table) -> list[dict[str, Cell]]:
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    columns = [table.c[name] for name in _columns(table) if name in there]
    order = [*table.primary_key.columns]
    found = connection.execute(sa.select(*columns).order_by(*order)).mappings()
    own = _defaults(table)
    return [own | {str(key): value for key, value in row.items()} for row in found]


def _defaults(table: sa.Table) -> dict[str, Cell]:
    """Return the columns that an older fleet did not have, to what that stands for."""
    return {
        column.name: column.type.python_type(default.arg)
        for column in table.columns
        if isinstance(default := column.server_default, sa.DefaultClause)
    }


def _columns(table: sa.Table) -> dict[str, type]:
    """Return the columns that hold something; a journal's numbers are counted again."""
    return {
        column.name: column.type.python_type for column in table.columns if column.name != "number"
    }
