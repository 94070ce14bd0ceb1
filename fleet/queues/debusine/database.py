"""Read a whole Debusine server over SQL: its waiting requests and its workers.

One read-only transaction reads one snapshot. Unreadable parts are Unknown, with advice. Demand and
workers fail independently.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from fleet.errors import SourceUnreachable
from fleet.model.facts import Demand, QueueReading, Unknown
from fleet.model.values import first_mistake
from fleet.planner.durations import Made, by_type
from fleet.queues.debusine.connection import explained, identify, reading
from fleet.queues.debusine.packages import (
    Seconds,
    looks_of,
    read_packages,
    read_runs,
    read_seconds,
    running_packages,
)
from fleet.queues.debusine.pools import launching_pools
from fleet.queues.debusine.waiting import check_scopes, read_environments, read_groups
from fleet.queues.debusine.workers import DatabaseWorker, read_rows, read_workers
from fleet.schema.model import DebusineQueue, Fleet

if TYPE_CHECKING:
    from fleet.queues.debusine.connection import Connection

_Read = TypeVar("_Read")


class DebusineDatabase:
    """The queue and the workers of one Debusine server, read with a read-only database role."""

    def __init__(self, fleet: Fleet, queue: DebusineQueue, dsn: str, made: Made = tuple) -> None:
        self._fleet = fleet
        self._scopes = tuple(dict.fromkeys(queue.scopes))
        self._dsn = dsn
        self._made = made

    def read(self, now: datetime) -> QueueReading:
        """Return all workers, and the waiting requests grouped by fields that fleet.yaml uses."""
        try:
            with reading(self._dsn) as connection:
                identify(connection)
                return self._reading(connection, now)
        except SourceUnreachable as error:
            unknown = Unknown.of(error)
            return QueueReading(demand=unknown, workers=unknown)

    def _reading(self, connection: "Connection", now: datetime) -> QueueReading:
        rows = _attempt(connection, read_rows)
        known = () if isinstance(rows, Unknown) else rows
        found = _attempt(connection, lambda c: self._demand(c, now, known))
        seconds = Seconds() if isinstance(found, Unknown) else found[1]
        registry = (
            rows
            if isinstance(rows, Unknown)
            else _attempt(
                connection,
                lambda c: (
                    read_workers(c, rows, self._fleet.fleet, seconds),
                    launching_pools(c),
                ),
            )
        )
        demand = found if isinstance(found, Unknown) else found[0]
        if isinstance(registry, Unknown):
            return QueueReading(demand=demand, workers=registry)
        return QueueReading(demand=demand, workers=registry[0], rivals=registry[1])

    def _demand(
        self, connection: "Connection", now: datetime, workers: tuple[DatabaseWorker, ...]
    ) -> tuple[Demand, Seconds]:
        check_scopes(connection, self._scopes)
        looks = looks_of(self._fleet, (tag for row in workers for tag in row.tags.requires))
        packages = read_packages(connection, self._scopes, looks, of=(self._fleet, now.date()))
        groups = read_groups(connection, self._scopes, looks, packages)
        separate = packages.alone | (running_packages(connection) if looks.named else frozenset())
        seconds = read_seconds(connection, separate)
        runs = read_runs(connection, separate, self._fleet.fleet)
        environments = read_environments(connection, self._scopes) if looks.environments else {}
        named = {request.package for request in groups}
        demand = Demand(
            read_at=now,
            requests=tuple(map(seconds.expecting, groups)),
            stored=True,
            history=tuple(each for each in packages.history if each.package in named),
            runs=by_type(runs, self._made()) if runs else (),
            environments=environments,
        )
        return demand, seconds


def _attempt(connection: "Connection", read: "Callable[[Connection], _Read]") -> _Read | Unknown:
    """Return the result, or Unknown with the reason. The connection stays usable."""
    try:
        with _savepoint(connection):
            return read(connection)
    except SourceUnreachable as error:
        return Unknown.of(error)
    except ValidationError as error:
        wrong = first_mistake(error, "a row")
        return Unknown(unknown=f"unexpected data in the database: {wrong}")


@contextmanager
def _savepoint(connection: "Connection") -> Iterator[None]:
    """Roll back to a savepoint after an error. If the connection is broken, raise the error."""
    import psycopg

    try:
        with connection.transaction():
            yield
    except psycopg.Error as error:
        if connection.broken:
            raise
        raise explained(error) from None
