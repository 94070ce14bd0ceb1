"""The store: what outlives a run, in one database of a fleet.

SQLite by default, PostgreSQL for a team. Reading never creates it: a store that is missing
where one is expected is StoreMissing, and only `init` makes one. A table that a store of an older
fleet lacks is read as empty, and made by the first who writes into it.
"""

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import IO, Any

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
from fleet.model.history import Observed, Sample
from fleet.model.images import Manifest, Move, Version
from fleet.model.log import Chain, LogEntry, Mark
from fleet.model.months import Tally
from fleet.model.orders import Order
from fleet.model.tickets import first_id
from fleet.model.values import in_utc
from fleet.ports import Charging, Noted, Since, StackRecord
from fleet.schema.model import Fleet
from fleet.state.database import (
    ABOUT,
    ABOUT_FORMAT,
    ATTEMPTS,
    IMAGES,
    LEDGER,
    LOCK,
    MADE,
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
    TICKETS_AFTER,
    Database,
    LockingConnection,
    Rows,
    add_about,
    find_migration,
    found_in,
    make_tables,
    next_fence,
    number_of,
    read_about,
    read_rows,
    rows_of,
    value_of,
    write_about,
    write_rows,
)
from fleet.state.files import make_private
from fleet.state.history import spread
from fleet.state.log import append_entries, read_chain, read_entries, take_log
from fleet.state.moments import list_chains, unpack_chain, unpack_first, write_moment
from fleet.state.storage import find_storage

_JOURNAL = 10_000
"""How many runs the journal keeps: a week of a loop that runs every minute."""
_TRIED = timedelta(days=30)
"""How long a try to make a machine is remembered."""
_SAMPLED = timedelta(days=35)
_WHOLE = timedelta(days=2)
"""How long every sample stays; of older ones, the first in each ten minutes does."""
_TEN_MINUTES = len("2026-11-21T08:0")
_ORDERED = timedelta(days=31)
"""By how much the clock of the last run may be ahead of an order's."""
_PLACES = 9
"""Money is counted in billionths."""
# Keys of the table `about`; of those that end in a space, the rest says what they are of.
_CHARGED, _WAITING, _ABSENT = "charged_until", "waiting", "absent"
_PRICES, _RULES, _NOTICES, _LOOKS = "prices ", "rules ", "notice ", "looks "
_DEPARTURES = "departure "
_SENT = {"sent": True, "failed": False}
_ORDER: TypeAdapter[Order] = TypeAdapter(Order)
_ABSENCES: TypeAdapter[tuple[Absence, ...]] = TypeAdapter(tuple[Absence, ...])


class KeptLooks:
    """The looks at one provider's machines, as a text under a key of the store."""

    def __init__(
        self, begin: Callable[[], AbstractContextManager[sa.Connection]], key: str
    ) -> None:
        self._begin = begin
        self._key = key

    def __str__(self) -> str:
        return f"the store, key {self._key!r}"

    def read(self) -> str | None:
        """Return what was noted last; None: nothing was, or there is no store yet."""
        with suppress(StoreMissing), self._begin() as connection:
            return value_of(connection, self._key)
        return None

    def write(self, text: str) -> None:
        """Note this in its place."""
        with self._begin() as connection:
            write_about(connection, {self._key: text})


class DatabaseStore(Database):
    """The store behind one SQLAlchemy URL, for one fleet."""

    def __init__(self, url: str, fleet: str, *, journal: int = _JOURNAL) -> None:
        super().__init__(url, fleet)
        self._journal = journal

    def init(self, now: datetime | None = None) -> bool:
        """Create the store; False when it exists already and is this fleet's.

        `now`: what is older than that, it cannot know of, and its ticket ids start after those of
        any store that may be lost; None: it is not to replace another.
        """
        about = {MADE: now.isoformat(), TICKETS_AFTER: str(first_id(now))} if now else {}
        return self._create({"about": [{"key": key, "value": about[key]} for key in about]})

    def number_tickets_after(self, highest: int) -> None:
        """Give no ticket this id or a lower one from now on: a lost store may have given it."""
        with self.begin() as connection:
            known = number_of(connection, TICKETS_AFTER)
            write_about(connection, {TICKETS_AFTER: str(max(known, highest))})

    def dump(self) -> Rows:
        """Return all its rows, those of the lock left out."""
        with self.begin() as connection:
            return read_rows(connection)

    def fill(self, rows: Rows) -> bool:
        """Create the store with these rows, or put them into one that is empty; all or nothing.

        Return False if the store had rows already.
        """
        if self._create(rows):
            return True
        with self.begin() as connection:
            # Who has these rows already has all of them.
            if any(read_rows(connection).values()):
                return False
            make_tables(connection, METADATA.sorted_tables)
            write_rows(connection, rows)
            # It knows all that the store knew that these are of.
            write_about(connection, {}, drop=(MADE,))
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
                # A run that began at the same time and is later fails here.
                add_about(connection, {**ABOUT_FORMAT, "fleet": self._fleet})
                write_rows(connection, rows)
        except StoreFailed:
            # Somebody who began at the same time may have created it.
            with suppress(StoreMissing), self.begin():
                return False
            raise
        return True

    def migration(self) -> tuple[str, ...]:
        """Return what `migrate` would do; nothing for a store that this fleet made."""
        with self.begin() as connection:
            return tuple(find_migration(connection))

    def migrate(self) -> None:
        """Make what a store of an older fleet lacks, all or nothing where the database can."""
        with self.begin() as connection:
            make_tables(connection, METADATA.sorted_tables)
            write_about(connection, ABOUT_FORMAT)

    def stacks(self) -> tuple[StackRecord, ...]:
        """Return every stack that was ever made and not yet removed, sorted by name."""
        with self.begin() as connection:
            rows = connection.execute(sa.select(STACKS).order_by(STACKS.c.name)).mappings()
            with rows_of(STACKS):
                return tuple(StackRecord.model_validate(dict(row)) for row in rows)

    def record_stack(self, record: StackRecord) -> None:
        """Remember a stack, and what was seen, spent and tried, under its pool's name of today.

        Raises EngineMismatch when another engine owns it.
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
                _rename_in_attempts(connection, known.pool, record.pool)
                _rename_in_ledger(connection, known.pool, record.pool)
                _rename_in_samples(connection, known.pool, record.pool)
            connection.execute(sa.delete(STACKS).where(same))
            connection.execute(sa.insert(STACKS), [record.model_dump()])

    def forget_stack(self, name: str) -> None:
        """Drop a stack that is empty and whose pool is gone."""
        with self._transaction() as connection:
            connection.execute(sa.delete(STACKS).where(STACKS.c.name == name))

    def begin_run(self, *, started: datetime) -> None:
        """Append a run without an end to the journal, so that one that dies is seen."""
        row = {"started": started.isoformat(), "ended": "", "plan": "", "outcome": ""}
        with self._transaction() as connection:
            connection.execute(sa.insert(RUNS), [row])

    def record_step(self, *, started: datetime, step: str) -> None:
        """Append a line to the run that was begun then, in the place of its outcome."""
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
        noted: Noted | None = None,
    ) -> None:
        """End the run that was begun then, or append one that was not; `outcome` is JSON.

        Entries of the log, and what it counted for its month, are added with it.

        The oldest runs leave the journal, so that a loop without end does not fill the disk.
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

    def last_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first: started, ended, plan, outcome."""
        return self._runs(count)

    def ended_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs that carried a plan out to its end, newest first."""
        return self._runs(count, RUNS.c.ended != "", RUNS.c.plan != "")

    def _runs(self, count: int, *where: sa.ColumnElement[bool]) -> tuple[Mapping[str, str], ...]:
        columns = (RUNS.c.started, RUNS.c.ended, RUNS.c.plan, RUNS.c.outcome)
        latest = RUNS.c.number.desc()
        query = sa.select(*columns).where(*where).order_by(latest).limit(count)
        with self.begin() as connection:
            found = tuple(
                {str(key): str(value) for key, value in row.items()}
                for row in connection.execute(query).mappings()
            )
        with rows_of(RUNS):
            for run in found:
                for moment in (run["started"], run["ended"] or run["started"]):
                    in_utc(datetime.fromisoformat(moment))
        return found

    def record_sample(self, sample: Sample, observed: Observed | None = None) -> None:
        """Remember what a run observed, in place of what was recorded of the same moment."""
        at = SAMPLES.c.at
        row = {"at": sample.at.isoformat(), "sample": sample.model_dump_json(exclude={"at"})}
        is_older = at < (sample.at - _WHOLE).isoformat()
        tens = sa.func.substr(at, 1, _TEN_MINUTES)
        stays = sa.select(sa.func.min(at)).where(is_older).group_by(tens)
        with self.begin() as connection:
            SAMPLES.create(connection, checkfirst=True)
            connection.execute(sa.delete(SAMPLES).where(at == row["at"]))
            connection.execute(sa.insert(SAMPLES), [row])
            connection.execute(sa.delete(SAMPLES).where(at < (sample.at - _SAMPLED).isoformat()))
            connection.execute(sa.delete(SAMPLES).where(is_older, at.not_in(stays)))
            if observed:
                write_moment(connection, observed)

    def samples(self, since: datetime, until: datetime) -> tuple[Sample, ...]:
        """Return what runs observed from one moment up to another, the oldest first."""
        at = SAMPLES.c.at
        of_then = (at >= since.isoformat(), at <= until.isoformat())
        query = sa.select(at, SAMPLES.c.sample).where(*of_then).order_by(at)
        with self.begin() as connection, rows_of(SAMPLES):
            return tuple(
                Sample.model_validate({"at": row.at, **json.loads(row.sample)})
                for row in found_in(connection, SAMPLES, query)
            )

    def moments(self, since: datetime, until: datetime) -> Iterator[bytes]:
        """Yield the worlds that runs observed from one moment up to another, the oldest first."""
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
        """Yield at most so many of the worlds that runs observed in a time, spread evenly."""
        with self.begin() as connection:
            firsts = [*list_chains(connection, since, until)]
            with rows_of(MOMENTS):
                chains = [
                    first
                    for first in firsts
                    if since <= in_utc(datetime.fromisoformat(first)) <= until
                ]
            for first in spread(chains, most):
                if world := unpack_first(connection, first):
                    yield world

    def append_log(self, entries: Sequence[LogEntry]) -> Mark:
        """Append entries, all or none, and return the place of the last one."""
        with self.begin() as connection:
            return append_entries(connection, entries)

    def read_log(self, since: datetime | None = None) -> tuple[LogEntry, ...]:
        """Return the entries from a moment on, in the order in which they were written."""
        with self.begin() as connection:
            return read_entries(connection, since)

    def log_chain(self) -> Chain:
        """Return the whole log as it is kept, to be verified."""
        with self.begin() as connection:
            return read_chain(connection)

    def charge(self, charging: Charging) -> bool:
        """Add to the ledger, all or nothing; False when its time was charged by someone else.

        Moved back, what was charged for later hours is taken back too.
        """
        until, since = charging.until.isoformat(), charging.since
        with self.begin() as connection:
            if _charged_until(connection) != since:
                return False
            LEDGER.create(connection, checkfirst=True)
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
                amounts = (entry.seconds, int(entry.money.scaleb(_PLACES)))
                _add_to_ledger(connection, entry.hour.isoformat(), payer, amounts)
            _add_tallies(connection, charging.tallies)
            if charging.payers is not None:
                PAYERS.create(connection, checkfirst=True)
                connection.execute(sa.delete(PAYERS))
                _write_payers(connection, charging.payers)
            return True

    def note_payers(self, payers: Sequence[MachinePayer]) -> None:
        """Note the payers of machines that are to be created; other machines keep theirs."""
        if not payers:
            return
        names = {each.machine for each in payers}
        with self.begin() as connection:
            PAYERS.create(connection, checkfirst=True)
            connection.execute(sa.delete(PAYERS).where(PAYERS.c.machine.in_(names)))
            _write_payers(connection, payers)

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return what was charged in the current hour, day and month, by payer.

        What a run whose clock was ahead has charged for later hours does not count.
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
        with self.begin() as connection:
            rows = found_in(connection, LEDGER, query).all()
            with rows_of(LEDGER):
                payers = [json.loads(row[0]) for row in rows]
                _refuse_others({payer.pop("currency") for payer in payers}, currency)
                charges = [_charge(p, row[1:]) for p, row in zip(payers, rows, strict=True)]
            return Ledger(
                charged_until=_charged_until(connection),
                charges=tuple(sorted(charges, key=lambda charge: charge.model_dump_json())),
                payers=_read_payers(connection),
            )

    def charged_since(self) -> datetime | None:
        """Return the first hour that anything was charged in; None: nothing was yet."""
        query = sa.select(sa.func.min(LEDGER.c.hour))
        with self.begin() as connection, rows_of(LEDGER):
            first = found_in(connection, LEDGER, query).scalar()
            return in_utc(datetime.fromisoformat(first)) if first else None

    def tallies(self, month: str) -> tuple[Tally, ...]:
        """Return what was counted in a month, by kind and name."""
        of_it = sa.select(MONTHS).where(MONTHS.c.month == month)
        query = of_it.order_by(MONTHS.c.kind, MONTHS.c.name)
        with self.begin() as connection, rows_of(MONTHS):
            rows = found_in(connection, MONTHS, query).mappings()
            return tuple(Tally.model_validate(dict(row)) for row in rows)

    def absences(self) -> tuple[Absence, ...]:
        """Return the machines that the last run missed; none where that cannot be read."""
        with self.begin() as connection:
            try:
                return _ABSENCES.validate_json(value_of(connection, _ABSENT) or "[]")
            except ValidationError:
                return ()  # counting starts again, which keeps machines

    def record_absences(self, absences: Sequence[Absence]) -> None:
        """Remember the machines that this run missed, in place of those of the last one."""
        with self.begin() as connection:
            text = _ABSENCES.dump_json(tuple(absences)).decode()
            if text != (value_of(connection, _ABSENT) or "[]"):
                write_about(connection, {_ABSENT: text})

    def waited(self) -> Mapping[str, datetime]:
        """Return the requests that waited in the last run that counted, to since when."""
        with self.begin() as connection, rows_of(ABOUT):
            since = json.loads(value_of(connection, _WAITING) or "{}")
            return {key: in_utc(datetime.fromisoformat(at)) for key, at in since.items()}

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Remember tries to make machines; one that is known already gets its new result."""
        with self.begin() as connection:
            if not attempts:
                return
            ATTEMPTS.create(connection, checkfirst=True)
            for attempt in attempts:
                row = attempt.model_dump(mode="json") | {"at": attempt.at.isoformat()}
                same = (ATTEMPTS.c.worker == row["worker"], ATTEMPTS.c.at == row["at"])
                connection.execute(sa.delete(ATTEMPTS).where(*same))
                connection.execute(sa.insert(ATTEMPTS), [row])
            oldest = max(attempt.at for attempt in attempts) - _TRIED
            connection.execute(sa.delete(ATTEMPTS).where(ATTEMPTS.c.at < oldest.isoformat()))

    def attempts(self, latest: int) -> tuple[Attempt, ...]:
        """Return the latest tries of each pool, machine type and market, the oldest first."""
        columns = ATTEMPTS.c
        place = sa.func.row_number().over(
            partition_by=(columns.pool, columns.type, columns.market),
            order_by=(columns.at.desc(), columns.worker),
        )
        numbered = sa.select(ATTEMPTS, place.label("place")).subquery()
        # Those that have not ended are all returned: they say what they made.
        query = (
            sa.select(*(numbered.c[column.name] for column in columns))
            .where((numbered.c.place <= latest) | (numbered.c.result == "starting"))
            .order_by(numbered.c.at, numbered.c.worker)
        )
        with self.begin() as connection, rows_of(ATTEMPTS):
            rows = found_in(connection, ATTEMPTS, query).mappings()
            return tuple(Attempt.model_validate(dict(row)) for row in rows)

    def spent(self) -> Mapping[str, tuple[str, ...]]:
        """Return the digest of each approval that was used, to the machines it was used for."""
        query = sa.select(SPENT.c.approval, SPENT.c.machine).order_by(SPENT.c.machine)
        found: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        with self.begin() as connection:
            for approval, machine in found_in(connection, SPENT, query):
                found[approval] += (machine,)
        return dict(found)

    def spend(self, approval: str, machines: Collection[str]) -> None:
        """Use an approval for these machines; one that it was used for already counts once."""
        ours = (SPENT.c.approval == approval, SPENT.c.machine.in_(machines))
        with self._transaction() as connection:
            SPENT.create(connection, checkfirst=True)
            known = set(connection.execute(sa.select(SPENT.c.machine).where(*ours)).scalars())
            new = [
                {"approval": approval, "machine": name} for name in machines if name not in known
            ]
            if new:
                connection.execute(sa.insert(SPENT), new)

    def refund(self, approval: str, machines: Collection[str]) -> None:
        """Take back what an approval was used for where it was not done after all."""
        ours = (SPENT.c.approval == approval, SPENT.c.machine.in_(machines))
        with self._transaction() as connection:
            connection.execute(sa.delete(SPENT).where(*ours))

    def orders(self, now: datetime) -> tuple[Order, ...]:
        """Return what operators ordered that is in force then, sorted by its key."""
        with self.begin() as connection:
            rows = _order_rows(connection)
        with rows_of(ORDERS), _readable("an order (a freeze, a hold or an approval)"):
            return tuple(_order_of(row) for row in rows if not _is_over(row, now))

    def place_order(self, order: Order, entry: LogEntry, console: str = "") -> None:
        """Write down an order in place of one of the same key, and into the log, both or neither.

        It needs no lock of the fleet. Orders that are long over go.
        """
        row = {"key": order.key, "until": order.until.isoformat(), "console": console}
        with self.begin() as connection:
            append_entries(connection, [entry])
            ORDERS.create(connection, checkfirst=True)
            write_about(connection, ABOUT_FORMAT)
            gone = {order.key, *_long_over(connection, order.at)}
            connection.execute(sa.delete(ORDERS).where(ORDERS.c.key.in_(gone)))
            connection.execute(sa.insert(ORDERS), [row | {"order": order.model_dump_json()}])

    def lift_orders(self, orders: Mapping[str, LogEntry]) -> frozenset[str]:
        """Drop orders by key, each with what the log says of it; return which there were."""
        ours = ORDERS.c.key.in_(orders.keys())
        with self.begin() as connection:
            # Of two that end the same order, the second finds none.
            take_log(connection)
            query = sa.select(ORDERS.c.key).where(ours)
            dropped = frozenset(found_in(connection, ORDERS, query).scalars())
            if dropped:
                connection.execute(sa.delete(ORDERS).where(ours))
                append_entries(connection, [orders[key] for key in sorted(dropped)])
            return dropped

    def console(self, order: str) -> str:
        """Return the end of the console that was kept with a hold; empty: none was."""
        query = sa.select(ORDERS.c.console).where(ORDERS.c.key == order)
        with self.begin() as connection:
            return str(found_in(connection, ORDERS, query).scalar() or "")

    def image_versions(self) -> tuple[Version, ...]:
        """Return every version that is remembered, by image, the oldest first."""
        query = sa.select(IMAGES.c.record).order_by(IMAGES.c.image, IMAGES.c.version)
        with self.begin() as connection:
            return tuple(map(_version, found_in(connection, IMAGES, query).scalars()))

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Remember a version in place of what it was; raises VersionMoved where it is not that."""
        self.move_image_versions([Move(was, version)])

    def move_image_versions(self, moves: Sequence[Move], log: Sequence[LogEntry] = ()) -> None:
        """Remember several versions in place of what they were, all or none."""
        with self.begin() as connection:
            for move in moves:
                _move(connection, move)
            if log:
                append_entries(connection, log)

    def forget_image_version(self, image: str, version: str) -> None:
        """Forget a version and its manifest; one that is not recorded is fine."""
        with self.begin() as connection:
            for table in (IMAGES, MANIFESTS):
                if sa.inspect(connection).has_table(table.name):
                    connection.execute(sa.delete(table).where(*_of(table, image, version)))

    def save_manifest(self, manifest: Manifest) -> None:
        """Remember what a published version holds, in place of what was known of it."""
        row = {"image": manifest.image, "version": manifest.version}
        with self.begin() as connection:
            MANIFESTS.create(connection, checkfirst=True)
            connection.execute(sa.delete(MANIFESTS).where(*_of(MANIFESTS, **row)))
            row["manifest"] = manifest.model_dump_json()
            connection.execute(sa.insert(MANIFESTS), [row])

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return what a published version holds; None: not recorded."""
        query = sa.select(MANIFESTS.c.manifest).where(*_of(MANIFESTS, image, version))
        with self.begin() as connection:
            text = found_in(connection, MANIFESTS, query).scalar()
        with _readable(f"the manifest of image {image} {version}"):
            return None if text is None else Manifest.model_validate_json(text)

    def rules_seen(self) -> Mapping[str, tuple[str, datetime]]:
        """Return, by queue and place, the digest of the rules seen last, and since when."""
        with self.begin() as connection, rows_of(ABOUT):
            return {key: _dated(text) for key, text in read_about(connection, _RULES).items()}

    def see_rules(self, seen: Mapping[str, tuple[str, datetime]]) -> None:
        """Remember that."""
        if not seen:
            return
        rows = {f"{_RULES}{key}": f"{what} {at.isoformat()}" for key, (what, at) in seen.items()}
        with self._transaction() as connection:
            write_about(connection, rows)

    def notified(self) -> Mapping[str, tuple[bool, datetime]]:
        """Return, by channel and notice, whether it was sent, and when that was last tried."""
        with self.begin() as connection:
            return _notified(connection)

    def note_notified(self, tried: Mapping[str, tuple[bool, datetime]], before: datetime) -> None:
        """Remember that, and forget what was last tried before that moment."""
        rows = {
            f"{_NOTICES}{key}": f"{'sent' if sent else 'failed'} {at.isoformat()}"
            for key, (sent, at) in tried.items()
        }
        with self._transaction() as connection:
            old = [key for key, (_, at) in _notified(connection).items() if at < before]
            write_about(connection, rows, drop=[f"{_NOTICES}{key}" for key in old])

    def departures(self) -> tuple[Departure, ...]:
        """Return why workers were drained or switched off, by worker and registry."""
        with self.begin() as connection:
            noted = read_about(connection, _DEPARTURES)
        with _readable("why a worker was drained"):
            return tuple(Departure.model_validate_json(noted[key]) for key in sorted(noted))

    def note_departures(
        self, departures: Collection[Departure], gone: Collection[Departure] = ()
    ) -> None:
        """Remember these, each in place of an earlier one, and forget those that are gone."""
        rows = {_departure_key(each): each.model_dump_json() for each in departures}
        with self.begin() as connection:
            write_about(connection, rows, drop=map(_departure_key, gone))

    def price_lists(self) -> Mapping[str, PriceList]:
        """Return, by provider, the price list that was kept last; an unreadable one is none."""
        with self.begin() as connection:
            kept = read_about(connection, _PRICES)
        found = {}
        for provider, text in kept.items():
            with suppress(ValidationError):
                found[provider] = PriceList.model_validate_json(text)
        return found

    def keep_price_list(self, provider: str, prices: PriceList) -> None:
        """Keep a price list in place of what was kept of this provider."""
        with self.begin() as connection:
            write_about(connection, {f"{_PRICES}{provider}": prices.model_dump_json()})

    def looks(self, provider: str) -> KeptLooks:
        """Return where looks at a provider's machines are noted."""
        return KeptLooks(self.begin, f"{_LOOKS}{provider}")

    def server_time(self) -> datetime | None:
        """Return what the clock of PostgreSQL says; None beside SQLite."""
        if self._file:
            return None
        with self.begin() as connection:
            said: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
            return said

    @contextmanager
    def lock(self, owner: str, now: datetime) -> Iterator[str | None]:
        """Hold the fleet's lock and yield who died holding it; Locked says who holds it.

        Within it every transaction raises Locked once another run has taken the lock over.
        """
        with self.begin():
            pass
        with self._alive():
            died, self._fence = self._take(owner, now)
            try:
                yield died
            finally:
                self._fence = 0
                self._release(owner)

    def lock_holder(self) -> tuple[str, str] | None:
        """Return who holds the lock and since when."""
        with self._transaction() as connection:
            row = connection.execute(sa.select(LOCK.c.owner, LOCK.c.since)).first()
        return (row.owner, row.since) if row else None

    def is_held(self) -> bool:
        """Say whether a run lives that holds the lock."""
        try:
            with self._alive():
                return False
        except Locked:
            return True

    def unlock(self, owner: str) -> None:
        """Take the lock away from a run that died; Locked if any run lives."""
        with self._alive():
            self._release(owner)

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Hold what is taken away from a process that dies: by the kernel, or by PostgreSQL."""
        with closing(self._take_file(self._file) if self._file else self._take_connection()):
            yield

    def _take_file(self, path: str) -> IO[bytes]:
        with touching(f"{path}.lock cannot be written", StoreFailed):
            file = open(f"{path}.lock", "ab", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - Path.open takes no mode; closed by who asked
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise Locked(f"{self._held()}; wait for it to end") from error
        return file

    def _take_connection(self) -> LockingConnection:
        connection = LockingConnection(self.url)
        with self._telling():
            if connection.take(self._fleet):
                return connection
        connection.close()
        raise Locked(f"{self._held()}; wait for it to end")

    def _take(self, owner: str, now: datetime) -> tuple[str | None, int]:
        """Note who holds the lock; return who died holding it, and the number of this lock."""
        row = {"one": 1, "owner": owner, "since": now.isoformat()}
        with self._transaction() as connection:
            # If its writer were alive, `_alive` would say so.
            died = connection.execute(sa.select(LOCK.c.owner)).scalar()
            connection.execute(sa.delete(LOCK))
            connection.execute(sa.insert(LOCK), [row])
            return died, next_fence(connection)

    def _held(self) -> str:
        holder = self.lock_holder()
        whose = f"{holder[0]}, since {holder[1]}" if holder else "a run that has just started"
        return f"another apply holds the lock of fleet {self._fleet}: {whose}"

    def _release(self, owner: str) -> None:
        with self._transaction() as connection:
            connection.execute(sa.delete(LOCK).where(LOCK.c.owner == owner))


def _rename_in_attempts(connection: sa.Connection, old: str, new: str) -> None:
    """Write every try down under a pool's new name."""
    if sa.inspect(connection).has_table(ATTEMPTS.name):
        renamed = sa.update(ATTEMPTS).where(ATTEMPTS.c.pool == old).values(pool=new)
        connection.execute(renamed)


def _rename_in_ledger(connection: sa.Connection, old: str, new: str) -> None:
    """Charge to a pool's new name what was charged to its old one."""
    for row in found_in(connection, LEDGER, sa.select(LEDGER)).all():
        payer = json.loads(row.payer)
        if payer["pool"] == old:
            same = (LEDGER.c.hour == row.hour, LEDGER.c.payer == row.payer)
            connection.execute(sa.delete(LEDGER).where(*same))
            amounts = (row.seconds, row.nanos)
            _add_to_ledger(connection, row.hour, payer | {"pool": new}, amounts)
    if sa.inspect(connection).has_table(PAYERS.name):
        renamed = sa.update(PAYERS).where(PAYERS.c.pool == old).values(pool=new)
        connection.execute(renamed)


def _write_payers(connection: sa.Connection, payers: Iterable[MachinePayer]) -> None:
    rows = [
        {
            "machine": each.machine,
            "pool": each.pool,
            "payer": each.model_dump_json(exclude={"machine", "pool"}, exclude_defaults=True),
        }
        for each in payers
    ]
    if rows:
        connection.execute(sa.insert(PAYERS), rows)


def _read_payers(connection: sa.Connection) -> tuple[MachinePayer, ...]:
    with rows_of(PAYERS):
        rows = found_in(connection, PAYERS, sa.select(PAYERS).order_by(PAYERS.c.machine)).all()
        return tuple(
            MachinePayer(machine=row.machine, pool=row.pool, **json.loads(row.payer))
            for row in rows
        )


def _rename_in_samples(connection: sa.Connection, old: str, new: str) -> None:
    """Write what was observed of a pool down under its new name."""
    with rows_of(SAMPLES):
        for row in found_in(connection, SAMPLES, sa.select(SAMPLES)).all():
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
    """Add to what is counted month by month."""
    if tallies:
        MONTHS.create(connection, checkfirst=True)
    for tally in tallies:
        row = tally.model_dump()
        amounts = {name: row.pop(name) for name in ("count", "seconds", "nanos")}
        _add(connection, MONTHS, row, amounts)


def _add(
    connection: sa.Connection, table: sa.Table, key: Mapping[str, str], amounts: Mapping[str, int]
) -> None:
    """Add amounts to the row of a key, which is made where there is none."""
    same = [table.c[name] == value for name, value in key.items()]
    added = {name: table.c[name] + amount for name, amount in amounts.items()}
    if not connection.execute(sa.update(table).where(*same).values(added)).rowcount:
        connection.execute(sa.insert(table), [{**key, **amounts}])


def _charged_until(connection: sa.Connection) -> datetime | None:
    found = value_of(connection, _CHARGED)
    with rows_of(ABOUT):
        return in_utc(datetime.fromisoformat(found)) if found else None


def _refuse_others(recorded: Collection[str], currency: str) -> None:
    """Raise StoreFailed where a month was not charged in this currency alone."""
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


def _charge(payer: dict[str, Any], sums: Sequence[Any]) -> Charge:
    return Charge(
        **payer,
        seconds=tuple(map(int, sums[:3])),
        money=tuple(Decimal(int(nanos)).scaleb(-_PLACES) for nanos in sums[3:]),
    )


def _order_rows(connection: sa.Connection) -> Sequence[sa.Row[Any]]:
    query = sa.select(ORDERS.c.key, ORDERS.c.until, ORDERS.c.order).order_by(ORDERS.c.key)
    return found_in(connection, ORDERS, query).all()


def _order_of(row: sa.Row[Any]) -> Order:
    """Return the order of a row; ValueError if the row says two different things of it."""
    order = _ORDER.validate_json(row.order)
    if (row.key, in_utc(datetime.fromisoformat(row.until))) != (order.key, order.until):
        raise ValueError(f"{row.key} until {row.until} is also {order.key} until {order.until}")
    return order


def _is_over(row: sa.Row[Any], now: datetime) -> bool:
    """Say whether all that a row says of its end is over; an unreadable end is not."""
    try:
        until = in_utc(datetime.fromisoformat(row.until))
    except ValueError:
        return False
    with suppress(ValidationError):  # another release of fleet may have written it
        until = max(until, _ORDER.validate_json(row.order).until)
    return until <= now


def _long_over(connection: sa.Connection, now: datetime) -> Iterator[str]:
    """Yield the keys of orders that are over by every clock.

    The clock of an operator may be ahead by any time, that of the last run by `_ORDERED` at most.
    """
    started = connection.execute(sa.select(sa.func.max(RUNS.c.started))).scalar()
    if started is not None:
        with rows_of(RUNS):
            latest = min(now, datetime.fromisoformat(started))
        rows = _order_rows(connection)
        yield from (row.key for row in rows if _is_over(row, latest - _ORDERED))


def _of(table: sa.Table, image: str, version: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.image == image, table.c.version == version)


def _move(connection: sa.Connection, move: Move) -> None:
    """Write a version down in place of what it was; None: nothing was known of it."""
    IMAGES.create(connection, checkfirst=True)
    key = {"image": move.now.image, "version": move.now.version}
    ours = _of(IMAGES, **key)
    row = {"record": move.now.model_dump_json()}
    known = connection.execute(sa.select(IMAGES.c.record).where(*ours)).scalar()
    if (known and _version(known)) != move.was:
        raise _moved(move.now)
    if known is not None:
        # Who else changed it since it was read above, changed its text.
        changed = sa.update(IMAGES).where(*ours, IMAGES.c.record == known).values(row)
        if not connection.execute(changed).rowcount:
            raise _moved(move.now)
        return
    try:
        connection.execute(sa.insert(IMAGES), [key | row])
    except sa.exc.IntegrityError as error:
        raise _moved(move.now) from error


def _moved(version: Version) -> VersionMoved:
    return VersionMoved(
        f"image {version.image} {version.version} was changed by another run; "
        "look at it with `fleet image show` and try again"
    )


def _version(record: str) -> Version:
    with _readable("an image version"):
        return Version.model_validate_json(record)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Read what a release of fleet wrote as JSON; StoreFailed where it was another one."""
    try:
        yield
    except ValidationError as error:
        raise StoreFailed(
            f"the store has {what} in a form that this fleet cannot read; another release of "
            "fleet wrote it"
        ) from error


def _departure_key(departure: Departure) -> str:
    return f"{_DEPARTURES}{departure.worker} {departure.registry}"


def _notified(connection: sa.Connection) -> dict[str, tuple[bool, datetime]]:
    with rows_of(ABOUT):
        found = {key: _dated(text) for key, text in read_about(connection, _NOTICES).items()}
        return {key: (_SENT[word], at) for key, (word, at) in found.items()}


def _dated(text: str) -> tuple[str, datetime]:
    """Return a word and the moment behind it."""
    word, at = text.split(" ", 1)
    return word, in_utc(datetime.fromisoformat(at))


def store_of(fleet: Fleet, file: str) -> DatabaseStore:
    """Return the store of a fleet, whose fleet.yaml is this file."""
    return DatabaseStore(find_storage(fleet, file).store, fleet.fleet)
