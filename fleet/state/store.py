"""The store: all state of a fleet in one database.

The database is SQLite by default, and PostgreSQL for a team. Only `init` creates the store; other
commands raise StoreMissing if it is missing. The first command that uses a store of an older
version adds tables and columns.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Generic, TypeVar

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from fleet.errors import EngineMismatch, Locked, StoreFailed, StoreMissing, VersionMoved, touching
from fleet.model.facts import (
    Absence,
    Attempt,
    Charge,
    Departure,
    Ledger,
    MachinePayer,
    PriceList,
)
from fleet.model.history import RunObservation, RunSample, Tally
from fleet.model.images import Manifest, Move, Version
from fleet.model.log import Chain, LogEntry, Mark
from fleet.model.orders import Order
from fleet.model.tickets import first_id
from fleet.model.values import in_utc
from fleet.ports import Charging, RunRecords, Since, StackRecord
from fleet.schema.model import Fleet
from fleet.state.database import (
    ABOUT,
    ABOUT_COLUMNS,
    ABOUT_FORMAT,
    ATTEMPTS,
    CREATED_KEY,
    FORMAT,
    IMAGES,
    LEDGER,
    LOCK,
    MANIFESTS,
    METADATA,
    MOMENTS,
    MONTHS,
    ORDERS,
    PAYERS,
    RUNS,
    SAMPLES,
    SPENT,
    STACKS,
    TICKETS,
    TICKETS_AFTER_KEY,
    Begin,
    Database,
    Rows,
    add_about,
    hold_lock_file,
    hold_server_lock,
    is_alive,
    next_fence,
    read_about,
    read_number,
    read_rows,
    read_value,
    reading_rows,
    replace_rows,
    write_about,
    write_rows,
)
from fleet.state.files import make_private
from fleet.state.history import spread
from fleet.state.log import append_entries, lock_log, read_chain, read_entries
from fleet.state.moments import list_chains, unpack_chain, unpack_first, write_moment
from fleet.state.storage import find_storage

_MAX_RUNS = 10_000
"""Maximum runs in the journal: one week with a run per minute."""
_ATTEMPT_RETENTION = timedelta(days=30)
"""Time for which attempts to create machines are kept."""
_SAMPLE_RETENTION = timedelta(days=35)
_FULL_SAMPLE_RETENTION = timedelta(days=2)
"""Time for which all samples of runs are kept. Later, the last sample per ten minutes is kept."""
_TEN_MINUTE_PREFIX = len("2026-11-21T08:0")
_MAX_CLOCK_LEAD = timedelta(days=31)
"""Maximum assumed error of the last run's clock, for the removal of expired orders."""
_MONEY_DECIMALS = 9
"""Decimal places of stored amounts of money, which are in billionths."""
# Keys of the table `about`.
_CHARGED = "charged_until"
_WAITING = "waiting"
_ABSENT = "absent"
_ORDER: TypeAdapter[Order] = TypeAdapter(Order)
_ABSENCES: TypeAdapter[tuple[Absence, ...]] = TypeAdapter(tuple[Absence, ...])
Content = TypeVar("Content")


@dataclass(frozen=True)
class Notes(Generic[Content]):
    """Values of one kind by name. Each value is text under a key of the table `about`."""

    begin: Begin
    prefix: str
    """Prefix of the keys. The name of the value follows it."""
    parse: Callable[[str], Content]
    render: Callable[[Content], str]

    def read(self) -> dict[str, Content]:
        """Map names to values, sorted by name."""
        with self.begin() as connection, reading_rows(ABOUT):
            found = read_about(connection, self.prefix)
        return {name: self._parse(name, found[name]) for name in sorted(found)}

    def find(self, name: str) -> Content | None:
        """Return the value with this name; None if the name is missing."""
        with self.begin() as connection, reading_rows(ABOUT):
            text = read_value(connection, self.prefix + name)
        return None if text is None else self._parse(name, text)

    def _parse(self, name: str, text: str) -> Content:
        with reading_rows(ABOUT, self.prefix + name):
            return self.parse(text)

    def write(self, values: Mapping[str, Content], gone: Collection[str] = ()) -> None:
        """Set the values of these names, and remove the names in `gone`."""
        if values or gone:
            rows = {self.prefix + name: self.render(value) for name, value in values.items()}
            with self.begin() as connection:
                write_about(connection, rows, drop=[self.prefix + name for name in gone])


class StoredSightings:
    """Stored text with the latest readiness checks of one provider's machines, under a key."""

    def __init__(self, begin: Begin, key: str) -> None:
        self._begin = begin
        self._key = key

    def __str__(self) -> str:
        return f"the store, key {self._key!r}"

    def read(self) -> str | None:
        """Return the stored text; None if the text or the whole store is missing."""
        with suppress(StoreMissing), self._begin() as connection:
            return read_value(connection, self._key)
        return None

    def write(self, text: str) -> None:
        """Replace the stored text."""
        with self._begin() as connection:
            write_about(connection, {self._key: text})


class Store(Database):
    """The store of one fleet, in the database at an SQLAlchemy URL."""

    def __init__(self, url: str, fleet: str, *, journal: int = _MAX_RUNS) -> None:
        super().__init__(url, fleet)
        self._journal = journal
        self.rules = Notes(self.begin, "rules ", _split_dated, _join_dated)
        """Last seen digest of rules, and its time, by queue and workspace, file or address."""
        self.notices = Notes(self.begin, "notice ", _split_dated, _join_dated)
        """`sent` or `failed`, and the time of the last attempt, by channel and notice."""
        self.departures = Notes(
            self.begin, "departure ", Departure.model_validate_json, Departure.model_dump_json
        )
        """Reasons for which workers were drained or disabled, by worker and registry."""
        self.prices = Notes(
            self.begin, "prices ", PriceList.model_validate_json, PriceList.model_dump_json
        )
        """Latest recorded price list of each provider."""

    def init(self, now: datetime | None = None) -> bool:
        """Create the store. Return False if this fleet already has a store.

        With `now`, ticket ids start above all ids of a lost store that this store may replace.
        With None, this store replaces no other store.
        """
        about = (
            {CREATED_KEY: now.isoformat(), TICKETS_AFTER_KEY: str(first_id(now))} if now else {}
        )
        return self._create({"about": [{"key": key, "value": about[key]} for key in about]})

    def number_tickets_after(self, highest: int) -> None:
        """Reserve all ticket ids up to `highest`, because a lost store may have used them."""
        with self.begin() as connection:
            known = read_number(connection, TICKETS_AFTER_KEY)
            write_about(connection, {TICKETS_AFTER_KEY: str(max(known, highest))})

    def dump(self) -> Rows:
        """Return the rows of all tables except the lock."""
        with self.begin() as connection:
            return read_rows(connection)

    def fill(self, rows: Rows) -> bool:
        """Create the store with these rows, or insert the rows into an empty store, atomically.

        Return False if the store is not empty.
        """
        if self._create(rows):
            return True
        with self.begin() as connection:
            # Rows are inserted atomically, so any row means all rows.
            if any(read_rows(connection).values()):
                return False
            write_rows(connection, rows)
            # The store now has all rows of the dumped store, so it replaces no lost store.
            write_about(connection, {}, drop=(CREATED_KEY,))
        return True

    def _create(self, rows: Rows) -> bool:
        try:
            with self.begin():
                return False
        except StoreMissing:
            pass
        if path := self._file:
            with touching(f"cannot create {path}", StoreFailed):
                make_private(Path(path))
        try:
            with self._transaction() as connection:
                METADATA.create_all(connection)
                # If another run created the store at the same time, this insert fails.
                add_about(connection, {**ABOUT_FORMAT, **ABOUT_COLUMNS, "fleet": self._fleet})
                write_rows(connection, rows)
        except StoreFailed:
            # Another run may have created the store at the same time.
            with suppress(StoreMissing), self.begin():
                return False
            raise
        return True

    def _select(
        self, table: sa.Table, query: sa.Select[Any], parse: Callable[[Any], Content]
    ) -> tuple[Content, ...]:
        """Return the parsed rows of a query; raises StoreFailed for a malformed row."""
        with self.begin() as connection, reading_rows(table):
            rows = connection.execute(query).mappings()
            return tuple(parse(dict(row)) for row in rows)

    def migration(self) -> str:
        """Return a sentence on the effect of `migrate`; empty if the format is the latest."""
        with self.begin() as connection:
            form = read_value(connection, "format")
        needs = ABOUT_FORMAT["needs"]
        change = f"format {form} becomes {FORMAT}: fleet before {needs} then refuses the store"
        return "" if form == FORMAT else change

    def migrate(self) -> None:
        """Mark the store with the latest format, so that older versions of fleet refuse it."""
        with self.begin() as connection:
            write_about(connection, ABOUT_FORMAT)

    def stacks(self) -> tuple[StackRecord, ...]:
        """Return all created stacks that were not removed, sorted by name."""
        query = sa.select(STACKS).order_by(STACKS.c.name)
        return self._select(STACKS, query, StackRecord.model_validate)

    def record_stack(self, record: StackRecord) -> None:
        """Record a stack. If its pool was renamed, rename the pool in earlier records too.

        Raises EngineMismatch if another engine created the stack.
        """
        same = STACKS.c.name == record.name
        with self.begin() as connection:
            known = connection.execute(sa.select(STACKS).where(same)).first()
            if known is not None and known.engine != record.engine:
                raise EngineMismatch(
                    f"stack {record.name} belongs to engine {known.engine}, not {record.engine}; "
                    f"set `engine: {known.engine}` on provider {known.provider} again"
                )
            if known is not None and known.pool != record.pool:
                for table in (ATTEMPTS, PAYERS):
                    renamed = sa.update(table).where(table.c.pool == known.pool)
                    connection.execute(renamed.values(pool=record.pool))
                _rename_in_ledger(connection, known.pool, record.pool)
                _rename_in_samples(connection, known.pool, record.pool)
            replace_rows(connection, STACKS, [record.model_dump()])

    def forget_stack(self, name: str) -> None:
        """Remove the record of an empty stack whose pool is no longer in fleet.yaml."""
        with self._transaction() as connection:
            connection.execute(sa.delete(STACKS).where(STACKS.c.name == name))

    def begin_run(self, *, started: datetime) -> None:
        """Append an unfinished run to the journal, so that a killed run is visible."""
        row = {"started": started.isoformat(), "ended": "", "plan": "", "outcome": ""}
        with self._transaction() as connection:
            connection.execute(sa.insert(RUNS), [row])

    def record_step(self, *, started: datetime, step: str) -> None:
        """Append a line to the outcome of the unfinished run that started at this time."""
        runs = RUNS.c
        begun = (runs.started == started.isoformat(), runs.ended == "")
        with self._transaction() as connection:
            told = {"outcome": runs.outcome + f"{step}\n"}
            connection.execute(sa.update(RUNS).where(*begun).values(told))

    def record_run(
        self,
        *,
        started: datetime,
        ended: datetime,
        plan: str,
        outcome: str,
        noted: RunRecords | None = None,
    ) -> None:
        """Record the end of the run that started at this time. Append the run if it is missing.

        `outcome` is JSON. The same transaction adds log entries and the counts of the month, and
        removes the oldest runs, so that the journal has a limited size.
        """
        row = {"ended": ended.isoformat(), "plan": plan, "outcome": outcome}
        begun = (RUNS.c.started == started.isoformat(), RUNS.c.ended == "")
        with self._transaction() as connection:
            found = connection.execute(sa.update(RUNS).where(*begun).values(row))
            if not found.rowcount:
                row["started"] = started.isoformat()
                connection.execute(sa.insert(RUNS), [row])
            newest = sa.select(sa.func.max(RUNS.c.number)).scalar_subquery()
            connection.execute(sa.delete(RUNS).where(RUNS.c.number <= newest - self._journal))
            if noted is not None:
                append_entries(connection, noted.log)
            if noted is not None and noted.counted is not None:
                _add_tallies(connection, noted.counted.tallies)
                since = {key: at.isoformat() for key, at in noted.counted.waiting.items()}
                write_about(connection, {_WAITING: json.dumps(since)})

    def last_runs(self, count: int, *, ended: bool = False) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first, with the keys started, ended, plan, outcome.

        `ended`: only runs that executed a plan to the end.
        """
        columns = (RUNS.c.started, RUNS.c.ended, RUNS.c.plan, RUNS.c.outcome)
        where = (RUNS.c.ended != "", RUNS.c.plan != "") if ended else ()
        query = sa.select(*columns).where(*where).order_by(RUNS.c.number.desc()).limit(count)
        with self.begin() as connection:
            found = tuple(
                {str(key): str(value) for key, value in row.items()}
                for row in connection.execute(query).mappings()
            )
        with reading_rows(RUNS):
            for run in found:
                for moment in (run["started"], run["ended"] or run["started"]):
                    in_utc(datetime.fromisoformat(moment))
        return found

    def record_sample(self, sample: RunSample, observed: RunObservation | None = None) -> None:
        """Record a run's summary figures and observation. Replace a sample of the same time."""
        at = SAMPLES.c.at
        row = {"at": sample.at.isoformat(), "sample": sample.model_dump_json(exclude={"at"})}
        is_older = at < (sample.at - _FULL_SAMPLE_RETENTION).isoformat()
        tens = sa.func.substr(at, 1, _TEN_MINUTE_PREFIX)
        stays = sa.select(sa.func.max(at)).where(is_older).group_by(tens)
        with self.begin() as connection:
            replace_rows(connection, SAMPLES, [row])
            connection.execute(
                sa.delete(SAMPLES).where(at < (sample.at - _SAMPLE_RETENTION).isoformat())
            )
            connection.execute(sa.delete(SAMPLES).where(is_older, at.not_in(stays)))
            if observed:
                write_moment(connection, observed)

    def samples(self, since: datetime, until: datetime) -> tuple[RunSample, ...]:
        """Return the summary figures (samples) of runs between two times, oldest first."""
        at = SAMPLES.c.at
        of_then = (at >= since.isoformat(), at <= until.isoformat())
        query = sa.select(at, SAMPLES.c.sample).where(*of_then).order_by(at)

        def parse(row: dict[str, str]) -> RunSample:
            return RunSample.model_validate({"at": row["at"], **json.loads(row["sample"])})

        return self._select(SAMPLES, query, parse)

    def moments(self, since: datetime, until: datetime) -> Iterator[bytes]:
        """Yield the observations between two times as JSON, oldest first."""
        with self.begin() as connection:
            chains = list_chains(connection, since, until)
        last = None
        for first in chains:
            with self.begin() as connection:
                chain = unpack_chain(connection, first)
            for at, world in chain.items():
                if since <= at <= until and (last is None or at > last):
                    last = at
                    yield world

    def some_moments(self, since: datetime, until: datetime, most: int) -> Iterator[bytes]:
        """Yield at most `most` evenly spaced observations between two times, as JSON."""
        with self.begin() as connection:
            firsts = [*list_chains(connection, since, until)]
            with reading_rows(MOMENTS):
                chains = [
                    first
                    for first in firsts
                    if since <= in_utc(datetime.fromisoformat(first)) <= until
                ]
            for first in spread(chains, most):
                if world := unpack_first(connection, first):
                    yield world

    def append_log(self, entries: Sequence[LogEntry]) -> Mark:
        """Append entries to the log atomically, and return the position of the last entry."""
        with self.begin() as connection:
            return append_entries(connection, entries)

    def read_log(self, since: datetime | None = None) -> tuple[LogEntry, ...]:
        """Return the log entries since a time, in the order of writing; None means all entries."""
        with self.begin() as connection:
            return read_entries(connection, since)

    def log_chain(self) -> Chain:
        """Return the log with its chained digests, for verification."""
        with self.begin() as connection:
            return read_chain(connection)

    def charge(self, charging: Charging) -> bool:
        """Add charges to the ledger atomically. Return False if another run charged this time.

        If the clock was set back, the charges of later hours are removed.
        """
        until, since = charging.until.isoformat(), charging.since
        with self.begin() as connection:
            if _charged_until(connection) != since:
                return False
            if since is None:
                add_about(connection, {_CHARGED: until})
            else:
                same = (ABOUT.c.key == _CHARGED, ABOUT.c.value == since.isoformat())
                moved = connection.execute(sa.update(ABOUT).where(*same).values(value=until))
                if not moved.rowcount:
                    return False
                if charging.until < since:
                    connection.execute(sa.delete(LEDGER).where(LEDGER.c.hour >= until))
            for entry in charging.entries:
                payer = entry.model_dump(include={"pool", "scope", "team", "owner", "tags"})
                payer["currency"] = charging.currency
                amounts = (entry.seconds, int(entry.money.scaleb(_MONEY_DECIMALS)))
                _add_to_ledger(connection, entry.hour.isoformat(), payer, amounts)
            _add_tallies(connection, charging.tallies)
            if charging.payers is not None:
                connection.execute(sa.delete(PAYERS))
                replace_rows(connection, PAYERS, map(_payer_row, charging.payers))
            return True

    def note_payers(self, payers: Sequence[MachinePayer]) -> None:
        """Record the payers (team, owner) of planned machines. Keep those of other machines."""
        with self.begin() as connection:
            replace_rows(connection, PAYERS, map(_payer_row, payers))

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return the charges of the current hour, day and month, by payer.

        Charges of later hours, from a run whose clock was ahead, are left out.
        """
        hour = LEDGER.c.hour
        sums = [
            sa.func.sum(sa.case((hour >= start.isoformat(), column), else_=0))
            for column in (LEDGER.c.seconds, LEDGER.c.nanos)
            for start in (since.hour, since.day, since.month)
        ]
        end = (since.hour + timedelta(hours=1)).isoformat()
        query = (
            sa.select(LEDGER.c.payer, *sums)
            .where(hour >= since.month.isoformat(), hour < end)
            .group_by(LEDGER.c.payer)
        )
        with self.begin() as connection, reading_rows(LEDGER):
            rows = connection.execute(query).all()
            payers = [json.loads(row[0]) for row in rows]
            _refuse_other_currencies({payer.pop("currency") for payer in payers}, currency)
            charges = [
                Charge(
                    **payer,
                    seconds=tuple(map(int, row[1:4])),
                    money=tuple(Decimal(int(n)).scaleb(-_MONEY_DECIMALS) for n in row[4:]),
                )
                for payer, row in zip(payers, rows, strict=True)
            ]
            return Ledger(
                charged_until=_charged_until(connection),
                charges=tuple(sorted(charges, key=lambda charge: charge.model_dump_json())),
                payers=_read_payers(connection),
            )

    def charged_since(self) -> datetime | None:
        """Return the first hour with a charge; None if there is no charge."""
        query = sa.select(sa.func.min(LEDGER.c.hour))
        with self.begin() as connection, reading_rows(LEDGER):
            first = connection.execute(query).scalar()
            return in_utc(datetime.fromisoformat(first)) if first else None

    def tallies(self, month: str) -> tuple[Tally, ...]:
        """Return the totals (count, seconds, money) of a month, sorted by kind and name."""
        of_it = sa.select(MONTHS).where(MONTHS.c.month == month)
        query = of_it.order_by(MONTHS.c.kind, MONTHS.c.name)
        return self._select(MONTHS, query, Tally.model_validate)

    def absences(self) -> tuple[Absence, ...]:
        """Return the machines that were missing in their providers' listings in the last run."""
        with self.begin() as connection, reading_rows(ABOUT):
            return _ABSENCES.validate_json(read_value(connection, _ABSENT) or "[]")

    def record_absences(self, absences: Sequence[Absence]) -> None:
        """Replace the recorded missing machines by those of this run."""
        with self.begin() as connection:
            write_about(connection, {_ABSENT: _ABSENCES.dump_json(tuple(absences)).decode()})

    def waited(self) -> Mapping[str, datetime]:
        """Map requests that waited in the last run to the start of their wait."""
        with self.begin() as connection, reading_rows(ABOUT):
            since = json.loads(read_value(connection, _WAITING) or "{}")
            return {key: in_utc(datetime.fromisoformat(at)) for key, at in since.items()}

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Record attempts to create machines. A recorded attempt gets the new result."""
        with self.begin() as connection:
            if attempts:
                rows = [
                    each.model_dump(mode="json") | {"at": each.at.isoformat()} for each in attempts
                ]
                replace_rows(connection, ATTEMPTS, rows)
                oldest = max(attempt.at for attempt in attempts) - _ATTEMPT_RETENTION
                connection.execute(sa.delete(ATTEMPTS).where(ATTEMPTS.c.at < oldest.isoformat()))

    def attempts(self, latest: int) -> tuple[Attempt, ...]:
        """Return `latest` attempts of each pool, machine type and market, oldest first."""
        columns = ATTEMPTS.c
        place = sa.func.row_number().over(
            partition_by=(columns.pool, columns.type, columns.market),
            order_by=(columns.at.desc(), columns.worker),
        )
        numbered = sa.select(ATTEMPTS, place.label("place")).subquery()
        # All unfinished attempts are returned too, because each names a created machine.
        query = (
            sa.select(*(numbered.c[column.name] for column in columns))
            .where((numbered.c.place <= latest) | (numbered.c.result == "starting"))
            .order_by(numbered.c.at, numbered.c.worker)
        )
        return self._select(ATTEMPTS, query, Attempt.model_validate)

    def ticket_queues_in_use(self) -> tuple[str, ...]:
        """Return the names of the queues with tickets that have a machine."""
        has = TICKETS.c.state == "ready"
        query = sa.select(TICKETS.c.queue).where(has).distinct().order_by(TICKETS.c.queue)
        with self.begin() as connection:
            return tuple(connection.execute(query).scalars())

    def spent(self) -> Mapping[str, tuple[str, ...]]:
        """Map the digest of each used approval to the machines that it was used for."""
        query = sa.select(SPENT.c.approval, SPENT.c.machine).order_by(SPENT.c.machine)
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        with self.begin() as connection:
            for approval, machine in connection.execute(query):
                found[approval] += (machine,)
        return dict(found)

    def spend(self, approval: str, machines: Collection[str]) -> None:
        """Record the use of an approval for machines. Each machine counts once."""
        rows = [{"approval": approval, "machine": name} for name in machines]
        with self.begin() as connection:
            replace_rows(connection, SPENT, rows)

    def refund(self, approval: str, machines: Collection[str]) -> None:
        """Remove the uses of an approval for machines whose actions were not carried out."""
        ours = (SPENT.c.approval == approval, SPENT.c.machine.in_(machines))
        with self._transaction() as connection:
            connection.execute(sa.delete(SPENT).where(*ours))

    def orders(self, now: datetime) -> tuple[Order, ...]:
        """Return the orders (freezes, holds, approvals) active at this time, sorted by key."""
        with self.begin() as connection:
            rows = _read_orders(connection)
        with reading_rows(ORDERS):
            return tuple(_parse_order(row) for row in rows if not _is_over(row, now))

    def place_order(self, order: Order, entry: LogEntry, console: str = "") -> None:
        """Write an order and its log entry atomically. Replace an order with the same key.

        This needs no lock of the fleet. It also removes orders that expired long ago.
        """
        row = {"key": order.key, "until": order.until.isoformat(), "console": console}
        with self.begin() as connection:
            append_entries(connection, [entry])
            write_about(connection, ABOUT_FORMAT)
            expired = {*_find_expired(connection, order.at)} - {order.key}
            replace_rows(connection, ORDERS, [row | {"order": order.model_dump_json()}])
            connection.execute(sa.delete(ORDERS).where(ORDERS.c.key.in_(expired)))

    def lift_orders(self, orders: Mapping[str, LogEntry]) -> frozenset[str]:
        """Remove orders by key and append their log entries. Return the keys actually removed."""
        ours = ORDERS.c.key.in_(orders.keys())
        with self.begin() as connection:
            # If two commands remove an order at the same time, the second finds no order.
            lock_log(connection)
            delete = sa.delete(ORDERS).where(ours).returning(ORDERS.c.key)
            dropped = frozenset(connection.execute(delete).scalars())
            if dropped:
                append_entries(connection, [orders[key] for key in sorted(dropped)])
            return dropped

    def console(self, order: str) -> str:
        """Return the console output stored with a hold order; empty without output."""
        query = sa.select(ORDERS.c.console).where(ORDERS.c.key == order)
        with self.begin() as connection:
            return str(connection.execute(query).scalar() or "")

    def image_versions(self) -> tuple[Version, ...]:
        """Return the records of all image versions, by image, oldest first."""
        query = sa.select(IMAGES.c.record).order_by(IMAGES.c.image, IMAGES.c.version)
        with self.begin() as connection:
            return tuple(map(_parse_version, connection.execute(query).scalars()))

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Replace a version's record; raises VersionMoved if the stored record is not `was`."""
        self.move_image_versions([Move(was, version)])

    def move_image_versions(self, moves: Sequence[Move], log: Sequence[LogEntry] = ()) -> None:
        """Replace the records of several image versions, and append log entries, atomically."""
        with self.begin() as connection:
            for move in moves:
                _move_version(connection, move)
            if log:
                append_entries(connection, log)

    def forget_image_version(self, image: str, version: str) -> None:
        """Remove the record of an image version and its manifest, if they exist."""
        with self.begin() as connection:
            for table in (IMAGES, MANIFESTS):
                connection.execute(sa.delete(table).where(*_is_version(table, image, version)))

    def save_manifest(self, manifest: Manifest) -> None:
        """Store the manifest of a published version. Replace an earlier manifest."""
        key = {"image": manifest.image, "version": manifest.version}
        with self.begin() as connection:
            replace_rows(connection, MANIFESTS, [key | {"manifest": manifest.model_dump_json()}])

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return the manifest of a published version; None if it is not stored."""
        query = sa.select(MANIFESTS.c.manifest).where(*_is_version(MANIFESTS, image, version))
        with self.begin() as connection, reading_rows(MANIFESTS):
            text = connection.execute(query).scalar()
            return None if text is None else Manifest.model_validate_json(text)

    def looks(self, provider: str) -> StoredSightings:
        """Return the storage of the latest readiness checks of a provider's machines."""
        return StoredSightings(self.begin, f"looks {provider}")

    def server_time(self) -> datetime | None:
        """Return the time by PostgreSQL's clock; None for SQLite."""
        if self._file:
            return None
        with self.begin() as connection:
            said: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
            return said

    @contextmanager
    def lock(self, owner: str, now: datetime) -> Iterator[str | None]:
        """Hold the fleet's lock. Yield the owner that died holding it, or None; raises Locked.

        In the body, each transaction raises Locked if another run has acquired the lock.
        """
        with self.begin():
            pass
        with self._hold_liveness_lock():
            died, self._fence = self._record_owner(owner, now)
            try:
                yield died
            finally:
                self._fence = 0
                self._remove_owner(owner)

    def lock_holder(self) -> tuple[str, str] | None:
        """Return the owner of the lock and the time of locking; None if the lock is free."""
        with self._transaction() as connection:
            row = connection.execute(sa.select(LOCK.c.owner, LOCK.c.since)).first()
        return (row.owner, row.since) if row else None

    def killed_holder(self) -> tuple[str, str] | None:
        """Return the owner of the lock and its time if the owner died on this computer."""
        holder = self.lock_holder()
        return holder if holder and is_alive(holder[0]) is False else None

    def is_held(self) -> bool:
        """Return whether a living run holds the lock."""
        try:
            with self._hold_liveness_lock():
                return False
        except Locked:
            return True

    def unlock(self, owner: str) -> None:
        """Release the lock of a dead run; raises Locked if a living run holds it."""
        with self._hold_liveness_lock():
            self._remove_owner(owner)

    @contextmanager
    def _hold_liveness_lock(self) -> Iterator[None]:
        """Hold a lock that the kernel or PostgreSQL releases when the process dies."""
        path = self._file
        lock = hold_lock_file(f"{path}.lock") if path else hold_server_lock(self.url, self._fleet)
        with self._translating_errors(), lock as is_held:
            if is_held:
                yield
                return
        # The connection is free again: a pool of connections may have no other one.
        holder = self.lock_holder()
        whose = f"{holder[0]}, since {holder[1]}" if holder else "a run that has just started"
        raise Locked(
            f"another apply holds the lock of fleet {self._fleet}: {whose}; wait for it to end"
        )

    def _record_owner(self, owner: str, now: datetime) -> tuple[str | None, int]:
        """Record the lock's owner; return the owner that died with it, and the fencing token."""
        row = {"one": 1, "owner": owner, "since": now.isoformat()}
        with self._transaction() as connection:
            # If the recorded owner were alive, `_hold_liveness_lock` would have failed.
            died = connection.execute(sa.select(LOCK.c.owner)).scalar()
            connection.execute(sa.delete(LOCK))
            connection.execute(sa.insert(LOCK), [row])
            if not self._is_counted:
                write_about(connection, ABOUT_COLUMNS)
            return died, next_fence(connection)

    def _remove_owner(self, owner: str) -> None:
        with self._transaction() as connection:
            connection.execute(sa.delete(LOCK).where(LOCK.c.owner == owner))


def _rename_in_ledger(connection: sa.Connection, old: str, new: str) -> None:
    """Rename a pool in the ledger's charges."""
    for row in connection.execute(sa.select(LEDGER)).all():
        payer = json.loads(row.payer)
        if payer["pool"] == old:
            same = (LEDGER.c.hour == row.hour, LEDGER.c.payer == row.payer)
            connection.execute(sa.delete(LEDGER).where(*same))
            amounts = (row.seconds, row.nanos)
            _add_to_ledger(connection, row.hour, payer | {"pool": new}, amounts)


def _payer_row(payer: MachinePayer) -> dict[str, str]:
    text = payer.model_dump_json(exclude={"machine", "pool"}, exclude_defaults=True)
    return {"machine": payer.machine, "pool": payer.pool, "payer": text}


def _read_payers(connection: sa.Connection) -> tuple[MachinePayer, ...]:
    with reading_rows(PAYERS):
        rows = connection.execute(sa.select(PAYERS).order_by(PAYERS.c.machine)).all()
        return tuple(
            MachinePayer(machine=row.machine, pool=row.pool, **json.loads(row.payer))
            for row in rows
        )


def _rename_in_samples(connection: sa.Connection, old: str, new: str) -> None:
    """Rename a pool in the stored samples."""
    with reading_rows(SAMPLES):
        for row in connection.execute(sa.select(SAMPLES)).all():
            kept = json.loads(row.sample)
            if old in kept["pools"]:
                kept["pools"].setdefault(new, kept["pools"].pop(old))
                renamed = sa.update(SAMPLES).where(SAMPLES.c.at == row.at)
                connection.execute(renamed.values(sample=json.dumps(kept)))


def _add_to_ledger(
    connection: sa.Connection, hour: str, payer: Mapping[str, Any], amounts: tuple[int, int]
) -> None:
    key = {"hour": hour, "payer": json.dumps(payer, sort_keys=True)}
    _add(connection, LEDGER, key, dict(zip(("seconds", "nanos"), amounts, strict=True)))


def _add_tallies(connection: sa.Connection, tallies: Sequence[Tally]) -> None:
    """Add counts, seconds and money to the stored totals of their months."""
    for tally in tallies:
        row = tally.model_dump()
        amounts = {name: row.pop(name) for name in ("count", "seconds", "nanos")}
        _add(connection, MONTHS, row, amounts)


def _add(
    connection: sa.Connection, table: sa.Table, key: Mapping[str, str], amounts: Mapping[str, int]
) -> None:
    """Add amounts to the row with this key. Insert the row if it is missing."""
    same = [table.c[name] == value for name, value in key.items()]
    added = {name: table.c[name] + amount for name, amount in amounts.items()}
    if not connection.execute(sa.update(table).where(*same).values(added)).rowcount:
        connection.execute(sa.insert(table), [{**key, **amounts}])


def _charged_until(connection: sa.Connection) -> datetime | None:
    found = read_value(connection, _CHARGED)
    with reading_rows(ABOUT):
        return in_utc(datetime.fromisoformat(found)) if found else None


def _refuse_other_currencies(recorded: Collection[str], currency: str) -> None:
    """Raise StoreFailed if a recorded currency of the month is not `currency`."""
    others = sorted({*recorded} - {currency})
    if not others:
        return
    said = (
        f"what was spent in the month is recorded in {' and '.join(sorted(recorded))}, and "
        f"`money.currency` of fleet.yaml is {currency}: "
    )
    if len(recorded) > 1:
        raise StoreFailed(f"{said}amounts of two currencies are not added up")
    raise StoreFailed(
        f"{said}write {others[0]} there until the month is over, and whenever you report it"
    )


def _read_orders(connection: sa.Connection) -> Sequence[sa.Row[Any]]:
    return connection.execute(sa.select(ORDERS).order_by(ORDERS.c.key)).all()


def _parse_order(row: sa.Row[Any]) -> Order:
    """Parse the order in a row; raises ValueError if the columns contradict the order."""
    order = _ORDER.validate_json(row.order)
    if (row.key, in_utc(datetime.fromisoformat(row.until))) != (order.key, order.until):
        raise ValueError(f"{row.key} until {row.until} is also {order.key} until {order.until}")
    return order


def _is_over(row: sa.Row[Any], now: datetime) -> bool:
    """Return whether both recorded end times of an order have passed; False if unreadable."""
    try:
        until = in_utc(datetime.fromisoformat(row.until))
    except ValueError:
        return False
    with suppress(ValidationError):  # another version of fleet may have written it
        until = max(until, _ORDER.validate_json(row.order).until)
    return until <= now


def _find_expired(connection: sa.Connection, now: datetime) -> Iterator[str]:
    """Yield the keys of orders that have expired even if clocks are wrong.

    The clock of an operator may be ahead by any time; the clock of the last run may be ahead by at
    most `_MAX_CLOCK_LEAD`.
    """
    started = connection.execute(sa.select(sa.func.max(RUNS.c.started))).scalar()
    if started is not None:
        with reading_rows(RUNS):
            latest = min(now, datetime.fromisoformat(started))
        rows = _read_orders(connection)
        yield from (row.key for row in rows if _is_over(row, latest - _MAX_CLOCK_LEAD))


def _is_version(table: sa.Table, image: str, version: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.image == image, table.c.version == version)


def _move_version(connection: sa.Connection, move: Move) -> None:
    """Replace the record of a version; raises VersionMoved if the record is not `move.was`."""
    key = {"image": move.now.image, "version": move.now.version}
    ours = _is_version(IMAGES, **key)
    row = {"record": move.now.model_dump_json()}
    known = connection.execute(sa.select(IMAGES.c.record).where(*ours)).scalar()
    if (known and _parse_version(known)) != move.was:
        raise _moved_error(move.now)
    if known is not None:
        # A concurrent run that moved the version has changed the text of its record.
        changed = sa.update(IMAGES).where(*ours, IMAGES.c.record == known).values(row)
        if not connection.execute(changed).rowcount:
            raise _moved_error(move.now)
        return
    try:
        connection.execute(sa.insert(IMAGES), [key | row])
    except sa.exc.IntegrityError as error:
        raise _moved_error(move.now) from error


def _moved_error(version: Version) -> VersionMoved:
    return VersionMoved(
        f"image {version.image} {version.version} was changed by another run; "
        "look at it with `fleet image show` and try again"
    )


def _parse_version(record: str) -> Version:
    with reading_rows(IMAGES):
        return Version.model_validate_json(record)


def _split_dated(text: str) -> tuple[str, datetime]:
    """Split a text into its first word and the time after the word."""
    word, at = text.split(" ", 1)
    return word, in_utc(datetime.fromisoformat(at))


def _join_dated(dated: tuple[str, datetime]) -> str:
    return f"{dated[0]} {dated[1].isoformat()}"


def store_of(fleet: Fleet, file: str) -> Store:
    """Return the store of the fleet in this fleet.yaml."""
    return Store(find_storage(fleet, file).store, fleet.fleet)
