"""The store: what outlives a run, in one database of a fleet.

SQLite by default, PostgreSQL for a team. Reading never creates it: a store that is missing
where one is expected is StoreMissing, and only `init` makes one.
"""

import fcntl
import json
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import IO, Any

import sqlalchemy as sa
from pydantic import ValidationError

from fleet.errors import EngineMismatch, Locked, StoreFailed, StoreMissing, VersionMoved
from fleet.model.facts import Attempt, Charge, Entry, Ledger, PriceList
from fleet.model.history import Observed, Sample
from fleet.model.images import Manifest, Move, Version
from fleet.model.log import Chain, LogEntry, Mark
from fleet.model.months import Tally
from fleet.model.orders import Order
from fleet.model.values import in_utc
from fleet.ports import Charging, Noted, Since, StackRecord
from fleet.state.database import (
    ABOUT,
    ATTEMPTS,
    IMAGES,
    LEDGER,
    LOCK,
    MANIFESTS,
    METADATA,
    RUNS,
    SAMPLES,
    SPENT,
    STACKS,
    Database,
    LockingConnection,
    Rows,
    about_format,
    find_migration,
    make_tables,
    next_fence,
    read_rows,
    rows_of,
    set_format,
    write_rows,
)
from fleet.state.files import make_private
from fleet.state.history import spread
from fleet.state.log import append_entries, read_chain, read_entries, take_log
from fleet.state.moments import list_chains, unpack_chain, unpack_first, write_moment
from fleet.state.months import add_tallies, read_tallies, read_waiting, write_waiting
from fleet.state.notices import read_notified, write_notified
from fleet.state.orders import drop_orders, read_console, read_orders, write_order

_KEPT = timedelta(days=30)


def write_attempts(connection: sa.Connection, attempts: Sequence[Attempt]) -> None:
    """Write tries down, each in place of what was known of it, and drop what is long past.

    A store that an older fleet made gets its table here.
    """
    ATTEMPTS.create(connection, checkfirst=True)
    for attempt in attempts:
        row = attempt.model_dump(mode="json") | {"at": attempt.at.isoformat()}
        same = (ATTEMPTS.c.worker == row["worker"], ATTEMPTS.c.at == row["at"])
        connection.execute(sa.delete(ATTEMPTS).where(*same))
        connection.execute(sa.insert(ATTEMPTS), [row])
    latest = max(attempt.at for attempt in attempts)
    oldest = (latest - _KEPT).isoformat()
    connection.execute(sa.delete(ATTEMPTS).where(ATTEMPTS.c.at < oldest))


def rename_in_attempts(connection: sa.Connection, old: str, new: str) -> None:
    """Write every try down under a pool's new name; an older store has none yet."""
    if sa.inspect(connection).has_table(ATTEMPTS.name):
        renamed = sa.update(ATTEMPTS).where(ATTEMPTS.c.pool == old).values(pool=new)
        connection.execute(renamed)


def read_attempts(connection: sa.Connection, latest: int) -> tuple[Attempt, ...]:
    """Return the latest tries of each pool, type and market; an older store has none yet.

    Those that have not ended are all returned: they say what they made.
    """
    if not sa.inspect(connection).has_table(ATTEMPTS.name):
        return ()
    columns = ATTEMPTS.c
    place = sa.func.row_number().over(
        partition_by=(columns.pool, columns.type, columns.market),
        order_by=(columns.at.desc(), columns.worker),
    )
    numbered = sa.select(ATTEMPTS, place.label("place")).subquery()
    query = (
        sa.select(*(numbered.c[column.name] for column in columns))
        .where((numbered.c.place <= latest) | (numbered.c.result == "starting"))
        .order_by(numbered.c.at, numbered.c.worker)
    )
    rows = connection.execute(query).mappings()
    with rows_of(ATTEMPTS):
        return tuple(Attempt.model_validate(dict(row)) for row in rows)


_SAMPLED = timedelta(days=35)
_WHOLE = timedelta(days=2)
"""How long every sample stays; of older ones, the first in each ten minutes does."""
_TEN_MINUTES = len("2026-11-21T08:0")


def write_sample(connection: sa.Connection, sample: Sample) -> None:
    """Write down what a run observed, and thin out and drop what is long past.

    A store that an older fleet made gets its table here.
    """
    SAMPLES.create(connection, checkfirst=True)
    at = SAMPLES.c.at
    row = {"at": sample.at.isoformat(), "sample": sample.model_dump_json(exclude={"at"})}
    connection.execute(sa.delete(SAMPLES).where(at == row["at"]))
    connection.execute(sa.insert(SAMPLES), [row])
    connection.execute(sa.delete(SAMPLES).where(at < (sample.at - _SAMPLED).isoformat()))
    is_older = at < (sample.at - _WHOLE).isoformat()
    stays = (
        sa.select(sa.func.min(at)).where(is_older).group_by(sa.func.substr(at, 1, _TEN_MINUTES))
    )
    connection.execute(sa.delete(SAMPLES).where(is_older, at.not_in(stays)))


def read_samples(
    connection: sa.Connection, since: datetime, until: datetime
) -> tuple[Sample, ...]:
    """Return the samples of a time, both its ends included; an older store has none yet."""
    if not sa.inspect(connection).has_table(SAMPLES.name):
        return ()
    at = SAMPLES.c.at
    query = (
        sa.select(at, SAMPLES.c.sample)
        .where(at >= since.isoformat(), at <= until.isoformat())
        .order_by(at)
    )
    with rows_of(SAMPLES):
        return tuple(
            Sample.model_validate({"at": row.at, **json.loads(row.sample)})
            for row in connection.execute(query)
        )


def rename_in_samples(connection: sa.Connection, old: str, new: str) -> None:
    """Write what was observed of a pool down under its new name; an older store has nothing."""
    if not sa.inspect(connection).has_table(SAMPLES.name):
        return
    rows = connection.execute(sa.select(SAMPLES)).all()
    with rows_of(SAMPLES):
        for row in rows:
            kept = json.loads(row.sample)
            if old in kept["pools"]:
                kept["pools"].setdefault(new, kept["pools"].pop(old))
                renamed = sa.update(SAMPLES).where(SAMPLES.c.at == row.at)
                connection.execute(renamed.values(sample=json.dumps(kept)))


def read_versions(connection: sa.Connection) -> tuple[Version, ...]:
    """Return every version, by image, the oldest first; an older store has none yet."""
    if not sa.inspect(connection).has_table(IMAGES.name):
        return ()
    query = sa.select(IMAGES.c.record).order_by(IMAGES.c.image, IMAGES.c.version)
    return tuple(map(_read, connection.execute(query).scalars()))


def write_version(connection: sa.Connection, version: Version, was: Version | None) -> None:
    """Write a version down in place of what it was; None: nothing was known of it.

    A store that an older fleet made gets its table here.
    """
    IMAGES.create(connection, checkfirst=True)
    ours = _ours(version.image, version.version)
    row = {"record": version.model_dump_json()}
    known = connection.execute(sa.select(IMAGES.c.record).where(*ours)).scalar()
    if (known and _read(known)) != was:
        raise _moved(version)
    if known is not None:
        # Who else changed it since it was read above, changed its text.
        changed = sa.update(IMAGES).where(*ours, IMAGES.c.record == known).values(row)
        if not connection.execute(changed).rowcount:
            raise _moved(version)
        return
    row |= {"image": version.image, "version": version.version}
    try:
        connection.execute(sa.insert(IMAGES), [row])
    except sa.exc.IntegrityError as error:
        raise _moved(version) from error


def drop_version(connection: sa.Connection, image: str, version: str) -> None:
    """Forget a version and its manifest; one that is not known is fine."""
    for table in (IMAGES, MANIFESTS):
        if sa.inspect(connection).has_table(table.name):
            connection.execute(sa.delete(table).where(*_ours(image, version, table)))


def write_manifest(connection: sa.Connection, manifest: Manifest) -> None:
    """Write down what a published version holds, in place of what was known of it."""
    MANIFESTS.create(connection, checkfirst=True)
    row = {"image": manifest.image, "version": manifest.version}
    connection.execute(sa.delete(MANIFESTS).where(*_ours(**row, table=MANIFESTS)))
    row |= {"manifest": manifest.model_dump_json()}
    connection.execute(sa.insert(MANIFESTS), [row])


def read_manifest(connection: sa.Connection, image: str, version: str) -> Manifest | None:
    """Return what a published version holds; None: not recorded."""
    if not sa.inspect(connection).has_table(MANIFESTS.name):
        return None
    query = sa.select(MANIFESTS.c.manifest).where(*_ours(image, version, MANIFESTS))
    text = connection.execute(query).scalar()
    try:
        return None if text is None else Manifest.model_validate_json(text)
    except ValidationError as error:
        raise StoreFailed(
            f"the store has the manifest of image {image} {version} in a form that this fleet "
            "cannot read; another release of fleet wrote it"
        ) from error


def _ours(
    image: str, version: str, table: sa.Table = IMAGES
) -> tuple[sa.ColumnElement[bool], ...]:
    return (table.c.image == image, table.c.version == version)


def _read(record: str) -> Version:
    try:
        return Version.model_validate_json(record)
    except ValidationError as error:
        raise StoreFailed(
            "the store has an image version in a form that this fleet cannot read; "
            "another release of fleet wrote it"
        ) from error


def _moved(version: Version) -> VersionMoved:
    return VersionMoved(
        f"image {version.image} {version.version} was changed by another run; "
        "look at it with `fleet image show` and try again"
    )


_CHARGED = "charged_until"
_PLACES = 9


def add_charges(connection: sa.Connection, charging: Charging) -> bool:
    """Add entries and move `charged_until`; False, and nothing is added, when it is elsewhere.

    Moved back, what was charged for later hours is taken back too.

    A store that an older fleet made gets its table here.
    """
    if _charged_until(connection) != charging.since:
        return False
    LEDGER.create(connection, checkfirst=True)
    until = charging.until.isoformat()
    if charging.since is None:
        connection.execute(sa.insert(ABOUT), [{"key": _CHARGED, "value": until}])
    else:
        moved = connection.execute(
            sa.update(ABOUT)
            .where(ABOUT.c.key == _CHARGED, ABOUT.c.value == charging.since.isoformat())
            .values(value=until)
        )
        if not moved.rowcount:
            return False
    if charging.since is not None and charging.until < charging.since:
        connection.execute(sa.delete(LEDGER).where(LEDGER.c.hour >= until))
    for entry in charging.entries:
        _add(connection, charging.currency, entry)
    return True


def rename_in_ledger(connection: sa.Connection, old: str, new: str) -> None:
    """Charge to a pool's new name what was charged to its old one; an older store has nothing."""
    if not sa.inspect(connection).has_table(LEDGER.name):
        return
    for row in connection.execute(sa.select(LEDGER)).all():
        payer = json.loads(row.payer)
        if payer["pool"] == old:
            same = (LEDGER.c.hour == row.hour, LEDGER.c.payer == row.payer)
            connection.execute(sa.delete(LEDGER).where(*same))
            _add_row(connection, row.hour, payer | {"pool": new}, (row.seconds, row.nanos))


def read_ledger(connection: sa.Connection, since: Since, currency: str) -> Ledger:
    """Return the sums of the current hour, day and month; an older store has none yet.

    What a run whose clock was ahead has charged for later hours does not count.
    """
    if not sa.inspect(connection).has_table(LEDGER.name):
        return Ledger()
    sums = [
        sa.func.sum(sa.case((LEDGER.c.hour >= start.isoformat(), column), else_=0))
        for column in (LEDGER.c.seconds, LEDGER.c.nanos)
        for start in (since.hour, since.day, since.month)
    ]
    rows = connection.execute(
        sa.select(LEDGER.c.payer, *sums)
        .where(
            LEDGER.c.hour >= since.month.isoformat(),
            LEDGER.c.hour < (since.hour + timedelta(hours=1)).isoformat(),
        )
        .group_by(LEDGER.c.payer)
    ).all()
    with rows_of(LEDGER):
        charges = [_charge(json.loads(row[0]), row[1:], currency) for row in rows]
    return Ledger(
        charged_until=_charged_until(connection),
        charges=tuple(sorted(charges, key=lambda charge: charge.model_dump_json())),
    )


def read_first_hour(connection: sa.Connection) -> datetime | None:
    """Return the first hour that anything was charged in; an older store has none yet."""
    if not sa.inspect(connection).has_table(LEDGER.name):
        return None
    first = connection.execute(sa.select(sa.func.min(LEDGER.c.hour))).scalar()
    with rows_of(LEDGER):
        return in_utc(datetime.fromisoformat(first)) if first else None


def _charged_until(connection: sa.Connection) -> datetime | None:
    query = sa.select(ABOUT.c.value).where(ABOUT.c.key == _CHARGED)
    found = connection.execute(query).scalar()
    with rows_of(ABOUT):
        return in_utc(datetime.fromisoformat(found)) if found else None


def _add(connection: sa.Connection, currency: str, entry: Entry) -> None:
    payer = {
        "currency": currency,
        **entry.model_dump(include={"pool", "scope", "team", "owner", "tags"}),
    }
    amounts = (entry.seconds, int(entry.money.scaleb(_PLACES)))
    _add_row(connection, entry.hour.isoformat(), payer, amounts)


def _add_row(
    connection: sa.Connection, hour: str, payer: Mapping[str, Any], amounts: tuple[int, int]
) -> None:
    key = {"hour": hour, "payer": json.dumps(payer, sort_keys=True)}
    added = {"seconds": amounts[0], "nanos": amounts[1]}
    found = connection.execute(
        sa.update(LEDGER)
        .where(LEDGER.c.hour == key["hour"], LEDGER.c.payer == key["payer"])
        .values({name: LEDGER.c[name] + amount for name, amount in added.items()})
    )
    if not found.rowcount:
        connection.execute(sa.insert(LEDGER), [key | added])


def _charge(payer: dict[str, Any], sums: tuple[Any, ...], currency: str) -> Charge:
    if payer.pop("currency") != currency:
        raise StoreFailed(
            f"what was spent this month is recorded in another currency than {currency}, the "
            "money.currency of fleet.yaml; set it back until the month is over"
        )
    return Charge(
        **payer,
        seconds=tuple(map(int, sums[:3])),
        money=tuple(Decimal(int(nanos)).scaleb(-_PLACES) for nanos in sums[3:]),
    )


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
        try:
            with self._begin() as connection:
                query = sa.select(ABOUT.c.value).where(ABOUT.c.key == self._key)
                return connection.execute(query).scalar()
        except StoreMissing:
            return None

    def write(self, text: str) -> None:
        """Note this in its place."""
        with self._begin() as connection:
            connection.execute(sa.delete(ABOUT).where(ABOUT.c.key == self._key))
            connection.execute(sa.insert(ABOUT), [{"key": self._key, "value": text}])


_PRICES = "prices "
"""Begins the keys of price lists; the provider follows."""


def read_price_lists(connection: sa.Connection) -> Mapping[str, PriceList]:
    """Return the price list that was kept last of each provider."""
    about = ABOUT.c
    rows = connection.execute(
        sa.select(about.key, about.value).where(about.key.startswith(_PRICES))
    ).all()
    found = {key.removeprefix(_PRICES): _read_prices(value) for key, value in rows}
    return {provider: prices for provider, prices in found.items() if prices is not None}


def write_price_list(connection: sa.Connection, provider: str, prices: PriceList) -> None:
    """Keep a price list in place of what was kept of this provider."""
    row = {"key": f"{_PRICES}{provider}", "value": prices.model_dump_json()}
    connection.execute(sa.delete(ABOUT).where(ABOUT.c.key == row["key"]))
    connection.execute(sa.insert(ABOUT), [row])


def _read_prices(text: str) -> PriceList | None:
    try:
        return PriceList.model_validate_json(text)
    except ValidationError:
        return None


def read_spent(connection: sa.Connection) -> Mapping[str, tuple[str, ...]]:
    """Return the digest of each approval that was used, to the machines it was used for."""
    # A store made before there were approvals has no table of them: none was used.
    if not sa.inspect(connection).has_table(SPENT.name):
        return {}
    found: defaultdict[str, list[str]] = defaultdict(list)
    query = sa.select(SPENT.c.approval, SPENT.c.machine).order_by(SPENT.c.machine)
    for approval, machine in connection.execute(query):
        found[approval].append(machine)
    return {approval: tuple(machines) for approval, machines in found.items()}


def write_spent(connection: sa.Connection, approval: str, machines: Collection[str]) -> None:
    """Use an approval for these machines; one that it was used for already counts once."""
    SPENT.create(connection, checkfirst=True)
    ours = (SPENT.c.approval == approval, SPENT.c.machine.in_(machines))
    known = set(connection.execute(sa.select(SPENT.c.machine).where(*ours)).scalars())
    rows = [{"approval": approval, "machine": name} for name in machines if name not in known]
    if rows:
        connection.execute(sa.insert(SPENT), rows)


def take_back(connection: sa.Connection, approval: str, machines: Collection[str]) -> None:
    """Take back what an approval was used for where it was not done after all."""
    ours = (SPENT.c.approval == approval, SPENT.c.machine.in_(machines))
    connection.execute(sa.delete(SPENT).where(*ours))


_RULES = "rules "
"""Begins the keys of the rules of queues that were seen; queue and place follow."""
_JOURNAL = 10_000
"""How many runs the journal keeps: a week of a loop that runs every minute."""


class DatabaseStore(Database):
    """The store behind one SQLAlchemy URL, for one fleet."""

    def __init__(self, url: str, fleet: str, *, journal: int = _JOURNAL) -> None:
        super().__init__(url, fleet)
        self._journal = journal

    def init(self) -> bool:
        """Create the store; False when it exists already and is this fleet's."""
        return self._create({})

    def dump(self) -> Rows:
        """Return all its rows, those of the lock left out."""
        with self._checked() as connection:
            return read_rows(connection)

    def fill(self, rows: Rows) -> None:
        """Create the store with these rows, or put them into one that is empty; all or nothing."""
        if self._create(rows):
            return
        with self._checked() as connection:
            # Who has these rows already has all of them.
            if not any(read_rows(connection).values()):
                make_tables(connection, METADATA.sorted_tables)
                write_rows(connection, rows)

    def _create(self, rows: Rows) -> bool:
        try:
            with self._checked():
                return False
        except StoreMissing:
            pass
        if path := self._file:
            try:
                make_private(Path(path))
            except OSError as error:
                raise StoreFailed(f"cannot create {path}: {error.strerror}") from error
        try:
            with self._transaction() as connection:
                METADATA.create_all(connection)
                connection.execute(
                    sa.insert(ABOUT),
                    [*about_format(), {"key": "fleet", "value": self._fleet}],
                )
                write_rows(connection, rows)
        except StoreFailed:
            # Somebody who began at the same time may have created it.
            with suppress(StoreMissing), self._checked():
                return False
            raise
        return True

    def migration(self) -> tuple[str, ...]:
        """Return what `migrate` would do; nothing for a store that this fleet made."""
        with self._checked() as connection:
            return tuple(find_migration(connection))

    def migrate(self) -> None:
        """Make what a store of an older fleet lacks, all or nothing where the database can."""
        with self._checked() as connection:
            make_tables(connection, METADATA.sorted_tables)
            set_format(connection)

    def stacks(self) -> tuple[StackRecord, ...]:
        """Return every stack that was ever made and not yet removed, sorted by name."""
        with self._checked() as connection:
            rows = connection.execute(sa.select(STACKS).order_by(STACKS.c.name)).mappings()
            with rows_of(STACKS):
                return tuple(StackRecord.model_validate(dict(row)) for row in rows)

    def record_stack(self, record: StackRecord) -> None:
        """Remember a stack, and what was seen, spent and tried, under its pool's name of today.

        Raises EngineMismatch when another engine owns it.
        """
        same = STACKS.c.name == record.name
        with self._checked() as connection:
            known = connection.execute(sa.select(STACKS).where(same)).first()
            if known is not None and known.engine != record.engine:
                raise EngineMismatch(
                    f"stack {record.name} belongs to engine {known.engine}, not {record.engine}; "
                    f"set `engine: {known.engine}` on provider {known.provider} again"
                )
            if known is not None and known.pool != record.pool:
                rename_in_attempts(connection, known.pool, record.pool)
                rename_in_ledger(connection, known.pool, record.pool)
                rename_in_samples(connection, known.pool, record.pool)
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
                add_tallies(connection, noted.counted.tallies)
                write_waiting(connection, noted.counted.waiting)

    def last_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first: started, ended, plan, outcome."""
        return self._runs(count)

    def ended_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs that carried a plan out to its end, newest first."""
        return self._runs(count, RUNS.c.ended != "", RUNS.c.plan != "")

    def _runs(self, count: int, *where: sa.ColumnElement[bool]) -> tuple[Mapping[str, str], ...]:
        columns = (
            RUNS.c.started,
            RUNS.c.ended,
            RUNS.c.plan,
            RUNS.c.outcome,
        )
        latest = RUNS.c.number.desc()
        query = sa.select(*columns).where(*where).order_by(latest).limit(count)
        with self._checked() as connection:
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
        with self._checked() as connection:
            write_sample(connection, sample)
            if observed:
                write_moment(connection, observed)

    def moments(self, since: datetime, until: datetime) -> Iterator[bytes]:
        """Yield the worlds that runs observed from one moment up to another, the oldest first."""
        with self._checked() as connection:
            chains = list_chains(connection, since, until)
        last = None
        for first in chains:
            with self._checked() as connection:
                chain = unpack_chain(connection, first)
            for at, world in chain.items():
                if since <= at <= until and (last is None or at > last):
                    last = at
                    yield world

    def samples(self, since: datetime, until: datetime) -> tuple[Sample, ...]:
        """Return what runs observed from one moment up to another, the oldest first."""
        with self._checked() as connection:
            return read_samples(connection, since, until)

    def some_moments(self, since: datetime, until: datetime, most: int) -> Iterator[bytes]:
        """Yield at most so many of the worlds that runs observed in a time, spread evenly."""
        with self._checked() as connection:
            chains = [
                first
                for first in list_chains(connection, since, until)
                if since <= datetime.fromisoformat(first) <= until
            ]
            for first in spread(chains, most):
                if world := unpack_first(connection, first):
                    yield world

    def append_log(self, entries: Sequence[LogEntry]) -> Mark:
        """Append entries, all or none, and return the place of the last one."""
        with self._checked() as connection:
            return append_entries(connection, entries)

    def read_log(self, since: datetime | None = None) -> tuple[LogEntry, ...]:
        """Return the entries from a moment on, in the order in which they were written."""
        with self._checked() as connection:
            return read_entries(connection, since)

    def log_chain(self) -> Chain:
        """Return the whole log as it is kept, to be verified."""
        with self._checked() as connection:
            return read_chain(connection)

    def charge(self, charging: Charging) -> bool:
        """Add to the ledger, all or nothing; False when its time was charged by someone else."""
        with self._checked() as connection:
            if not add_charges(connection, charging):
                return False
            add_tallies(connection, charging.packages)
            return True

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return what was charged in the current hour, day and month, by payer."""
        with self._checked() as connection:
            return read_ledger(connection, since, currency)

    def tallies(self, month: str) -> tuple[Tally, ...]:
        """Return what was counted in a month, by kind and name."""
        with self._checked() as connection:
            return read_tallies(connection, month)

    def waited(self) -> Mapping[str, datetime]:
        """Return the requests that waited in the last run that counted, to since when."""
        with self._checked() as connection:
            return read_waiting(connection)

    def charged_since(self) -> datetime | None:
        """Return the first hour that anything was charged in; None: nothing was yet."""
        with self._checked() as connection:
            return read_first_hour(connection)

    def record_attempts(self, attempts: Sequence[Attempt]) -> None:
        """Remember tries to make machines; one that is known already gets its new result."""
        with self._checked() as connection:
            if attempts:
                write_attempts(connection, attempts)

    def attempts(self, latest: int) -> tuple[Attempt, ...]:
        """Return the latest tries of each pool, machine type and market, the oldest first."""
        with self._checked() as connection:
            return read_attempts(connection, latest)

    def spent(self) -> Mapping[str, tuple[str, ...]]:
        """Return the digest of each approval that was used, to the machines it was used for."""
        with self._checked() as connection:
            return read_spent(connection)

    def spend(self, approval: str, machines: Collection[str]) -> None:
        """Use an approval for these machines; one that it was used for already counts once."""
        with self._transaction() as connection:
            write_spent(connection, approval, machines)

    def refund(self, approval: str, machines: Collection[str]) -> None:
        """Take back what an approval was used for where it was not done after all."""
        with self._transaction() as connection:
            take_back(connection, approval, machines)

    def orders(self, now: datetime) -> tuple[Order, ...]:
        """Return what operators ordered that is in force then, sorted by its key."""
        with self._checked() as connection:
            return read_orders(connection, now)

    def place_order(self, order: Order, entry: LogEntry, console: str = "") -> None:
        """Write down an order in place of one of the same key, and into the log, both or neither.

        It needs no lock of the fleet.
        """
        with self._checked() as connection:
            append_entries(connection, [entry])
            write_order(connection, order, console)

    def lift_orders(self, orders: Mapping[str, LogEntry]) -> frozenset[str]:
        """Drop orders by key, each with what the log says of it; return which there were."""
        with self._checked() as connection:
            # Of two that end the same order, the second finds none.
            take_log(connection)
            dropped = drop_orders(connection, orders.keys())
            if dropped:
                append_entries(connection, [orders[key] for key in sorted(dropped)])
            return dropped

    def console(self, order: str) -> str:
        """Return the end of the console that was kept with a hold; empty: none was."""
        with self._checked() as connection:
            return read_console(connection, order)

    def image_versions(self) -> tuple[Version, ...]:
        """Return every version that is remembered, by image, the oldest first."""
        with self._checked() as connection:
            return read_versions(connection)

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Remember a version in place of what it was; raises VersionMoved where it is not that."""
        self.move_image_versions([Move(was, version)])

    def move_image_versions(self, moves: Sequence[Move], log: Sequence[LogEntry] = ()) -> None:
        """Remember several versions in place of what they were, all or none."""
        with self._checked() as connection:
            for move in moves:
                write_version(connection, move.now, move.was)
            if log:
                append_entries(connection, log)

    def forget_image_version(self, image: str, version: str) -> None:
        """Forget a version; one that is not recorded is fine."""
        with self._checked() as connection:
            drop_version(connection, image, version)

    def save_manifest(self, manifest: Manifest) -> None:
        """Remember what a published version holds, in place of what was known of it."""
        with self._checked() as connection:
            write_manifest(connection, manifest)

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return what a published version holds; None: not recorded."""
        with self._checked() as connection:
            return read_manifest(connection, image, version)

    def rules_seen(self) -> Mapping[str, tuple[str, datetime]]:
        """Return, by queue and place, the digest of the rules seen last, and since when."""
        about = ABOUT.c
        with self._checked() as connection:
            rows = connection.execute(
                sa.select(about.key, about.value).where(about.key.startswith(_RULES))
            ).all()
        with rows_of(ABOUT):
            parted = [(key.removeprefix(_RULES), *value.split(" ", 1)) for key, value in rows]
            return {
                key: (digest, in_utc(datetime.fromisoformat(at))) for key, digest, at in parted
            }

    def see_rules(self, seen: Mapping[str, tuple[str, datetime]]) -> None:
        """Remember that."""
        rows = [
            {"key": f"{_RULES}{key}", "value": f"{digest} {since.isoformat()}"}
            for key, (digest, since) in seen.items()
        ]
        if not rows:
            return
        with self._transaction() as connection:
            keys = [row["key"] for row in rows]
            connection.execute(sa.delete(ABOUT).where(ABOUT.c.key.in_(keys)))
            connection.execute(sa.insert(ABOUT), rows)

    def notified(self) -> Mapping[str, tuple[bool, datetime]]:
        """Return, by channel and notice, whether it was sent, and when that was last tried."""
        with self._checked() as connection:
            return read_notified(connection)

    def note_notified(self, tried: Mapping[str, tuple[bool, datetime]], before: datetime) -> None:
        """Remember that, and forget what was last tried before that moment."""
        with self._transaction() as connection:
            write_notified(connection, tried, before)

    def price_lists(self) -> Mapping[str, PriceList]:
        """Return, by provider, the price list that was kept last; an unreadable one is none."""
        with self._checked() as connection:
            return read_price_lists(connection)

    def keep_price_list(self, provider: str, prices: PriceList) -> None:
        """Keep a price list in place of what was kept of this provider."""
        with self._checked() as connection:
            write_price_list(connection, provider, prices)

    def looks(self, provider: str) -> KeptLooks:
        """Return where looks at a provider's machines are noted."""
        return KeptLooks(self._checked, f"looks {provider}")

    def server_time(self) -> datetime | None:
        """Return what the clock of PostgreSQL says; None beside SQLite."""
        if self._file:
            return None
        with self._checked() as connection:
            said: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
            return said

    def begin(self) -> AbstractContextManager[sa.Connection]:
        """Begin a transaction in a store that exists, is of this format and of this fleet."""
        return self._checked()

    @contextmanager
    def lock(self, owner: str, now: datetime) -> Iterator[str | None]:
        """Hold the fleet's lock and yield who died holding it; Locked says who holds it.

        Within it every transaction raises Locked once another run has taken the lock over.
        """
        with self._checked():
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
        try:
            file = open(f"{path}.lock", "ab", opener=partial(os.open, mode=0o600))  # noqa: SIM115 - Path.open takes no mode; closed by who asked
        except OSError as error:
            raise StoreFailed(f"{path}.lock cannot be written: {error.strerror}") from error
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
