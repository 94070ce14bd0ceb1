"""This module keeps what must outlive a run: which stacks exist, who holds the lock, what ran.

SQLite by default, PostgreSQL for a team. Reading never creates it: a store that is missing
where one is expected is StoreMissing, and only `init` makes one.
"""

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO

import sqlalchemy as sa

from fleet.errors import EngineMismatch, Locked, StoreFailed, StoreMissing
from fleet.facts import Attempt
from fleet.facts.ledger import Ledger
from fleet.facts.manifest import Manifest
from fleet.facts.prices import PriceList
from fleet.facts.values import in_utc
from fleet.facts.versions import Move, Version
from fleet.ports.store import Charging, Since, StackRecord
from fleet.store import tables
from fleet.store.attempts import read_attempts, rename_in_attempts, write_attempts
from fleet.store.connecting import FORMAT, Database
from fleet.store.dump import Rows, read_rows, write_rows
from fleet.store.fencing import LockingConnection, next_fence
from fleet.store.files import make_private
from fleet.store.images import (
    drop_version,
    read_manifest,
    read_versions,
    write_manifest,
    write_version,
)
from fleet.store.ledger import add_charges, read_ledger, rename_in_ledger
from fleet.store.looks import KeptLooks
from fleet.store.price_lists import read_price_lists, write_price_list
from fleet.store.rows import rows_of
from fleet.store.spending import read_spent, take_back, write_spent
from fleet.store.upgrading import make_tables

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
                make_tables(connection, tables.METADATA.sorted_tables)
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
        with self._transaction() as connection:
            tables.METADATA.create_all(connection)
            connection.execute(
                sa.insert(tables.ABOUT),
                [{"key": "format", "value": FORMAT}, {"key": "fleet", "value": self._fleet}],
            )
            write_rows(connection, rows)
        return True

    def stacks(self) -> tuple[StackRecord, ...]:
        """Return every stack that was ever made and not yet removed, sorted by name."""
        with self._checked() as connection:
            rows = connection.execute(
                sa.select(tables.STACKS).order_by(tables.STACKS.c.name)
            ).mappings()
            with rows_of(tables.STACKS):
                return tuple(StackRecord.model_validate(dict(row)) for row in rows)

    def record_stack(self, record: StackRecord) -> None:
        """Remember a stack, and what was spent and tried, under its pool's name of today.

        Raises EngineMismatch when another engine owns it.
        """
        same = tables.STACKS.c.name == record.name
        with self._checked() as connection:
            known = connection.execute(sa.select(tables.STACKS).where(same)).first()
            if known is not None and known.engine != record.engine:
                raise EngineMismatch(
                    f"stack {record.name} belongs to engine {known.engine}, not {record.engine}; "
                    f"set `engine: {known.engine}` on provider {known.provider} again"
                )
            if known is not None and known.pool != record.pool:
                rename_in_attempts(connection, known.pool, record.pool)
                rename_in_ledger(connection, known.pool, record.pool)
            connection.execute(sa.delete(tables.STACKS).where(same))
            connection.execute(sa.insert(tables.STACKS), [record.model_dump()])

    def forget_stack(self, name: str) -> None:
        """Drop a stack that is empty and whose pool is gone."""
        with self._transaction() as connection:
            connection.execute(sa.delete(tables.STACKS).where(tables.STACKS.c.name == name))

    def begin_run(self, *, started: datetime) -> None:
        """Append a run without an end to the journal, so that one that dies is seen."""
        row = {"started": started.isoformat(), "ended": "", "plan": "", "outcome": ""}
        with self._transaction() as connection:
            connection.execute(sa.insert(tables.RUNS), [row])

    def record_step(self, *, started: datetime, step: str) -> None:
        """Append a line to the run that was begun then, in the place of its outcome."""
        runs = tables.RUNS.c
        begun = (runs.started == started.isoformat(), runs.ended == "")
        with self._transaction() as connection:
            told = {"outcome": runs.outcome + f"{step}\n"}
            connection.execute(sa.update(tables.RUNS).where(*begun).values(told))

    def record_run(self, *, started: datetime, ended: datetime, plan: str, outcome: str) -> None:
        """End the run that was begun then, or append one that was not; `outcome` is JSON.

        The oldest runs leave the journal, so that a loop without end does not fill the disk.
        """
        row = {"ended": ended.isoformat(), "plan": plan, "outcome": outcome}
        begun = (tables.RUNS.c.started == started.isoformat(), tables.RUNS.c.ended == "")
        with self._transaction() as connection:
            found = connection.execute(sa.update(tables.RUNS).where(*begun).values(row))
            if not found.rowcount:
                row["started"] = started.isoformat()
                connection.execute(sa.insert(tables.RUNS), [row])
            newest = sa.select(sa.func.max(tables.RUNS.c.number)).scalar_subquery()
            connection.execute(
                sa.delete(tables.RUNS).where(tables.RUNS.c.number <= newest - self._journal)
            )

    def last_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs, newest first: started, ended, plan, outcome."""
        return self._runs(count)

    def ended_runs(self, count: int) -> tuple[Mapping[str, str], ...]:
        """Return the latest runs that carried a plan out to its end, newest first."""
        return self._runs(count, tables.RUNS.c.ended != "", tables.RUNS.c.plan != "")

    def _runs(self, count: int, *where: sa.ColumnElement[bool]) -> tuple[Mapping[str, str], ...]:
        columns = (
            tables.RUNS.c.started,
            tables.RUNS.c.ended,
            tables.RUNS.c.plan,
            tables.RUNS.c.outcome,
        )
        latest = tables.RUNS.c.number.desc()
        query = sa.select(*columns).where(*where).order_by(latest).limit(count)
        with self._checked() as connection:
            found = tuple(
                {str(key): str(value) for key, value in row.items()}
                for row in connection.execute(query).mappings()
            )
        with rows_of(tables.RUNS):
            for run in found:
                for moment in (run["started"], run["ended"] or run["started"]):
                    in_utc(datetime.fromisoformat(moment))
        return found

    def charge(self, charging: Charging) -> bool:
        """Add to the ledger, all or nothing; False when its time was charged by someone else."""
        with self._checked() as connection:
            return add_charges(connection, charging)

    def ledger(self, since: Since, currency: str) -> Ledger:
        """Return what was charged in the current hour, day and month, by payer."""
        with self._checked() as connection:
            return read_ledger(connection, since, currency)

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

    def image_versions(self) -> tuple[Version, ...]:
        """Return every version that is remembered, by image, the oldest first."""
        with self._checked() as connection:
            return read_versions(connection)

    def save_image_version(self, version: Version, *, was: Version | None) -> None:
        """Remember a version in place of what it was; raises VersionMoved where it is not that."""
        self.move_image_versions([Move(was, version)])

    def move_image_versions(self, moves: Sequence[Move]) -> None:
        """Remember several versions in place of what they were, all or none."""
        with self._checked() as connection:
            for move in moves:
                write_version(connection, move.now, move.was)

    def forget_image_version(self, image: str, version: str) -> None:
        """Drop what is remembered of a version; one that nobody remembers is fine."""
        with self._checked() as connection:
            drop_version(connection, image, version)

    def save_manifest(self, manifest: Manifest) -> None:
        """Remember what a published version holds, in place of what was known of it."""
        with self._checked() as connection:
            write_manifest(connection, manifest)

    def manifest(self, image: str, version: str) -> Manifest | None:
        """Return what a published version holds; None where nobody remembers it."""
        with self._checked() as connection:
            return read_manifest(connection, image, version)

    def rules_seen(self) -> Mapping[str, tuple[str, datetime]]:
        """Return, by queue and place, the digest of the rules seen last, and since when."""
        about = tables.ABOUT.c
        with self._checked() as connection:
            rows = connection.execute(
                sa.select(about.key, about.value).where(about.key.startswith(_RULES))
            ).all()
        with rows_of(tables.ABOUT):
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
            connection.execute(sa.delete(tables.ABOUT).where(tables.ABOUT.c.key.in_(keys)))
            connection.execute(sa.insert(tables.ABOUT), rows)

    def price_lists(self) -> Mapping[str, PriceList]:
        """Return, by provider, the price list that was kept last; what nobody can read is none."""
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
            row = connection.execute(sa.select(tables.LOCK.c.owner, tables.LOCK.c.since)).first()
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
            # Whoever wrote it would still be alive to `_alive` if it were.
            died = connection.execute(sa.select(tables.LOCK.c.owner)).scalar()
            connection.execute(sa.delete(tables.LOCK))
            connection.execute(sa.insert(tables.LOCK), [row])
            return died, next_fence(connection)

    def _held(self) -> str:
        holder = self.lock_holder()
        whose = f"{holder[0]}, since {holder[1]}" if holder else "one that has just begun"
        return f"another apply holds the lock of fleet {self._fleet}: {whose}"

    def _release(self, owner: str) -> None:
        with self._transaction() as connection:
            connection.execute(sa.delete(tables.LOCK).where(tables.LOCK.c.owner == owner))
