"""Store tickets, and records about machines, in the database.

Each change is one transaction that checks the current state. Despite concurrent processes, an
ended ticket never changes, and only a waiting ticket gets a machine.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from fleet.errors import TicketRefused
from fleet.model.tickets import (
    OPEN,
    Given,
    Leased,
    Ticket,
    TicketState,
    highest_id_of_lost,
    task_in,
    unknown_ticket,
)
from fleet.model.values import in_utc
from fleet.planner.durations import FinishedRun
from fleet.planner.turns import Had
from fleet.state.database import (
    ABOUT,
    CREATED_KEY,
    TENANCIES,
    TICKETS,
    TICKETS_AFTER_KEY,
    Begin,
    read_number,
    read_value,
    reading_rows,
)
from fleet.tickets.tenancy import Tenancy, admit, keep, touch

_RETENTION = timedelta(days=30)
"""Time for which ended tickets are kept."""
_MAX_TICKETS = 50_000
"""Maximum tickets to keep, because each run reads all. Older ended tickets are deleted."""
_MAX_RUNS = 20_000
"""Maximum ended tickets to read for durations of builds."""
_MAX_TURNS = 5_000
"""Maximum ended tickets to read for turns of owners."""
_MAX_ATTEMPTS = 100
_IS_OPEN = TICKETS.c.state.in_(sorted(OPEN))


class _ConcurrentUpdate(Exception):
    """Signal to roll back a transaction, because another process changed a row."""


class DatabaseTickets:
    """The tickets of one queue, and the records of machines of all queues."""

    def __init__(self, begin: Begin, queue: str) -> None:
        self._begin = begin
        self.queue = queue

    def open(
        self, ticket: Ticket, *, most: int, most_of_submitter: int, most_of_address: int = 0
    ) -> Ticket:
        """Add a ticket and return it with its id; raises TicketRefused if too many are open.

        `most_of_address` limits the tickets of clients without a token; 0 means no limit.
        """
        for _ in range(_MAX_ATTEMPTS):
            with self._begin() as connection:
                self._refuse(connection, ticket, most, most_of_submitter, most_of_address)
                number = self._insert(connection, ticket)
            if number is not None:
                return ticket._replace(id=number)
        raise TicketRefused("too many clients open tickets at the same time; retry")

    def find(self, number: int) -> Ticket | None:
        """Return a ticket, open or recently ended; None if no ticket has this id."""
        return next(iter(self._read(self._select_ticket(number))), None)

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the open tickets of the queue, oldest first."""
        query = sa.select(TICKETS).where(self._is_of_queue(), _IS_OPEN)
        return self._read(query.order_by(TICKETS.c.id))

    def ready(self) -> tuple[Ticket, ...]:
        """Return the tickets of the queue that have a machine."""
        has = TICKETS.c.state == TicketState.READY
        return self._read(sa.select(TICKETS).where(self._is_of_queue(), has))

    def closed(self, since: datetime) -> tuple[Ticket, ...]:
        """Return the tickets that had a machine and that clients closed since a time."""
        ended = (TICKETS.c.state == TicketState.CLOSED, TICKETS.c.ended_at >= since.isoformat())
        return self._read(
            sa.select(TICKETS).where(self._is_of_queue(), *ended, TICKETS.c.machine != "")
        )

    def runs(self) -> Iterator[FinishedRun]:
        """Yield the durations of the latest builds, from the assigned machine to the close.

        Include only tickets that name their build and whose client reported success; other tickets
        may have run anything, or have failed. Source builds are separate tasks.
        """
        columns = TICKETS.c
        query = (
            sa.select(
                *(columns.chroot, columns.package, columns.machine),
                *(columns.ready_at, columns.ended_at),
            )
            .where(self._is_of_queue(), columns.state == TicketState.CLOSED)
            .where(columns.built != 0, columns.chroot != "", columns.package != "")
            .where(columns.machine != "", columns.ready_at != "")
            .order_by(columns.id.desc())
            .limit(_MAX_RUNS)
        )
        with self._begin() as connection:
            rows = connection.execute(query).all()
        for chroot, package, machine, ready, ended in rows:
            with reading_rows(TICKETS):
                began = _parse_time(ready)
                took = _parse_time(ended) - began
            seconds = max(0, int(took.total_seconds()))
            yield FinishedRun(task_in(chroot), package, machine, began, seconds)

    def ended(self) -> tuple[Ticket, ...]:
        """Return ended tickets of all queues whose machine has not changed since their end."""
        same = (TENANCIES.c.machine == TICKETS.c.machine, TENANCIES.c.since == TICKETS.c.ended_at)
        return self._read(sa.select(TICKETS).where(~_IS_OPEN, TICKETS.c.machine != "", *same))

    def had_since(self, since: datetime) -> tuple[Had, ...]:
        """Return owner, priority and end of tickets that released a machine since a time."""
        columns = TICKETS.c
        query = (
            sa.select(columns.owner, columns.priority, columns.background, columns.ended_at)
            .where(self._is_of_queue(), ~_IS_OPEN, columns.machine != "")
            .where(columns.ended_at >= since.isoformat())
            .order_by(columns.id.desc())
            .limit(_MAX_TURNS)
        )
        with self._begin() as connection, reading_rows(TICKETS):
            return tuple(
                Had(row.owner, row.priority - bool(row.background), _parse_time(row.ended_at))
                for row in connection.execute(query)
            )

    def tenancies(self) -> tuple[Tenancy, ...]:
        """Return the records of the machines of all queues, sorted by name."""
        query = sa.select(TENANCIES).order_by(TENANCIES.c.machine)
        with self._begin() as connection:
            return _tenancies(connection.execute(query).all())

    def change(
        self, number: int, step: Callable[[Ticket], Ticket], now: datetime
    ) -> Ticket | None:
        """Apply `step` to a ticket and return the result; None if no ticket has this id.

        If `step` ends the ticket, also release its machine.
        """
        for _ in range(_MAX_ATTEMPTS):
            with self._begin() as connection:
                row = connection.execute(self._select_ticket(number)).first()
                before = _tickets([row])[0] if row else None
                if row is None or before is None or (after := step(before)) == before:
                    return before
                update = sa.update(TICKETS).where(*_is_unchanged(TICKETS, row)).values(_row(after))
                if connection.execute(update).rowcount:
                    if before.machine and not after.is_open:
                        _release(connection, before.machine, now)
                    return after
        raise TicketRefused(f"ticket {number}: concurrent update; retry")

    def lease(self, given: Sequence[Given], now: datetime) -> Leased:
        """Assign machines to tickets that still wait. Return these tickets and the refusals."""
        if not given:
            return Leased()
        for _ in range(_MAX_ATTEMPTS):
            with suppress(_ConcurrentUpdate), self._begin() as connection:
                return self._lease(connection, given, now)
        raise TicketRefused("machines: concurrent update; retry")

    def _lease(self, connection: sa.Connection, given: Sequence[Given], now: datetime) -> Leased:
        # `_admit` selected tickets of this queue. With a condition on the queue, PostgreSQL would
        # scan the whole queue.
        waits = TICKETS.c.state == TicketState.WAITING
        update = (
            sa.update(TICKETS)
            .where(TICKETS.c.id == sa.bindparam("number"), waits)
            .values(
                state=TicketState.READY,
                machine=sa.bindparam("m"),
                answer=sa.bindparam("a"),
                granted=sa.bindparam("g"),
                note=sa.bindparam("n"),
                ready_at=now.isoformat(),
            )
        )
        rows = {row.machine: row for row in connection.execute(_SELECT_TENANCIES)}
        occupied, refused = self._admit(connection, given, rows, now)
        fit = [each for each in given if each.ticket in occupied]
        if fit:
            leases = [
                {
                    "number": each.ticket,
                    "m": each.machine,
                    "a": each.answer,
                    "g": json.dumps(each.tags),
                    "n": each.note,
                }
                for each in fit
            ]
            connection.execute(update, leases)
        held = _holders(connection)
        got = [each for each in fit if held.get(each.machine) == each.ticket]
        got.sort(key=lambda each: each.machine)
        # Use one statement: most machines are new, and single inserts take most of the time.
        new = [_tenancy_row(occupied[g.ticket]) for g in got if g.machine not in rows]
        if new:
            try:
                connection.execute(sa.insert(TENANCIES), new)
            except sa.exc.IntegrityError:
                raise _ConcurrentUpdate from None
        for each in got:
            row = rows.get(each.machine)
            if row is not None and not _write(connection, row, occupied[each.ticket]):
                raise _ConcurrentUpdate
        return Leased(tuple(each.ticket for each in got), refused)

    def _admit(
        self,
        connection: sa.Connection,
        given: Sequence[Given],
        rows: Mapping[str, sa.Row[Any]],
        now: datetime,
    ) -> tuple[dict[int, Tenancy], dict[int, str]]:
        """Map accepted tickets to their machines' new records, and refused ones to reasons."""
        numbers = TICKETS.c.id.in_(sorted(each.ticket for each in given))
        waiting = sa.select(TICKETS).where(
            self._is_of_queue(), TICKETS.c.state == TicketState.WAITING
        )
        tickets = {t.id: t for t in _tickets(connection.execute(waiting.where(numbers)))}
        known = {each.machine: each for each in _tenancies(rows.values())}
        holders = _holders(connection)
        occupied: dict[int, Tenancy] = {}
        refused: dict[int, str] = {}
        for each in given:
            if each.ticket in tickets:
                ticket, own = tickets[each.ticket], known.get(each.machine)
                try:
                    tenancy = admit(each, ticket, own, holders.get(each.machine), now)
                except ValueError as error:
                    refused[each.ticket] = str(error)
                else:
                    occupied[each.ticket] = tenancy
                    holders[each.machine] = each.ticket
        return occupied, refused

    def known_since(self) -> datetime | None:
        """Return the creation time of the store; None if unknown. No ticket in it is older."""
        with self._begin() as connection:
            found = read_value(connection, CREATED_KEY)
        with reading_rows(ABOUT):
            return None if found is None else _parse_time(found)

    def keep(self, machines: Mapping[str, str], now: datetime) -> dict[str, int]:
        """Open a ticket for each of these machines without a ticket; map machine to ticket id."""
        kept: dict[str, int] = {}
        with self._begin() as connection:
            held = _holders(connection)
            known = {row.machine: row for row in connection.execute(_SELECT_TENANCIES)}
            for machine in sorted(machines.keys() - held.keys()):
                # Skip the ids of the lost store, which its clients may still use.
                ticket = unknown_ticket(machine, now)
                number = self._insert(connection, ticket, least=highest_id_of_lost(now))
                if number is None:
                    continue
                row = known.get(machine)
                before = _tenancies([row])[0] if row else Tenancy(machine, now)
                numbered = ticket._replace(id=number)
                tenancy = keep(before, machines[machine], numbered, now)
                if not _write(connection, row, tenancy):
                    raise TicketRefused(f"machine {machine}: concurrent update; retry")
                kept[machine] = number
        return kept

    def note(self, notes: Mapping[int, str]) -> None:
        """Store the reason why each ticket waits. Clear the reasons of all other tickets."""
        waits = (self._is_of_queue(), TICKETS.c.state == TicketState.WAITING)
        query = sa.select(TICKETS.c.id, TICKETS.c.note).where(*waits)
        update = (
            sa.update(TICKETS)
            .where(TICKETS.c.id == sa.bindparam("number"), waits[1])
            .values(note=sa.bindparam("n"))
        )
        with self._begin() as connection:
            rows = [
                {"number": row.id, "n": notes.get(row.id, "")}
                for row in connection.execute(query)
                if row.note != notes.get(row.id, "")
            ]
            if rows:
                connection.execute(update, rows)

    def mark(
        self, machine: str, step: Callable[[Tenancy, Ticket | None], Tenancy], now: datetime
    ) -> None:
        """Change a machine's record with `step`, which gets the record and the current ticket."""
        has = (TICKETS.c.machine == machine, TICKETS.c.state == TicketState.READY)
        for _ in range(_MAX_ATTEMPTS):
            with self._begin() as connection:
                row = connection.execute(
                    _SELECT_TENANCIES.where(TENANCIES.c.machine == machine)
                ).first()
                holder = connection.execute(sa.select(TICKETS).where(*has)).first()
                known = _tenancies([row])[0] if row else Tenancy(machine, now)
                after = step(known, _tickets([holder])[0] if holder else None)
                if _write(connection, row, after):
                    return
        raise TicketRefused(f"machine {machine}: concurrent update; retry")

    def released(self) -> tuple[str, ...]:
        """Return the machines without a ticket that were not cleaned since their last ticket."""
        held = sa.select(TICKETS.c.machine).where(TICKETS.c.state == TicketState.READY)
        dirty = sa.select(TENANCIES.c.machine).where(
            TENANCIES.c.dirty != 0, TENANCIES.c.machine.not_in(held)
        )
        with self._begin() as connection:
            return tuple(sorted(connection.execute(dirty).scalars()))

    def tidy(self, now: datetime, *, besides: Collection[str] | None) -> None:
        """Delete old ended tickets, and records of machines not in `besides` (None keeps all).

        A ticket is old after 30 days, or beyond the newest 50,000 tickets. The newest ticket is
        kept, so that its id is never reused.
        """
        newest = sa.select(sa.func.max(TICKETS.c.id)).scalar_subquery()
        latest = sa.select(TICKETS.c.id).order_by(TICKETS.c.id.desc())
        beyond = latest.offset(_MAX_TICKETS).limit(1).scalar_subquery()
        ended = TICKETS.c.ended_at < (now - _RETENTION).isoformat()
        old = (TICKETS.c.id < newest, ended | (TICKETS.c.id <= beyond))
        held = sa.select(TICKETS.c.machine).where(_IS_OPEN)
        with self._begin() as connection:
            connection.execute(sa.delete(TICKETS).where(~_IS_OPEN, *old))
            if besides is not None:
                gone = TENANCIES.c.machine.not_in(sorted(besides))
                connection.execute(
                    sa.delete(TENANCIES).where(gone, TENANCIES.c.machine.not_in(held))
                )

    def _is_of_queue(self) -> sa.ColumnElement[bool]:
        return TICKETS.c.queue == self.queue

    def _select_ticket(self, number: int) -> sa.Select[Any]:
        return sa.select(TICKETS).where(self._is_of_queue(), TICKETS.c.id == number)

    def _read(self, query: sa.Select[Any]) -> tuple[Ticket, ...]:
        with self._begin() as connection:
            return _tickets(connection.execute(query).all())

    def _refuse(
        self,
        connection: sa.Connection,
        ticket: Ticket,
        most: int,
        most_of_submitter: int,
        most_of_address: int,
    ) -> None:
        """Raise TicketRefused if the queue, submitter or address has too many open tickets."""

        def count(*whose: sa.ColumnElement[bool]) -> int:
            number = sa.select(sa.func.count()).select_from(TICKETS)
            return int(
                connection.execute(
                    number.where(self._is_of_queue(), _IS_OPEN, *whose)
                ).scalar_one()
            )

        if ticket.address and most_of_address:
            held = count(TICKETS.c.client == ticket.client)
            if held >= most_of_address:
                raise TicketRefused(
                    f"clients without a token at {ticket.address} have {held:,} open tickets in "
                    f"queue {self.queue} (most_open_per_address: {most_of_address:,}); close "
                    "some, give its clients tokens (`fleet serve --tokens`), or raise "
                    f"queues.{self.queue}.most_open_per_address"
                )
        held = count(TICKETS.c.submitter == ticket.submitter)
        if held >= most_of_submitter:
            raise TicketRefused(
                f"{ticket.submitter or 'a client without a name'} has {held:,} open tickets in "
                f"queue {self.queue} (most_open_per_submitter: {most_of_submitter:,}); close "
                "some first"
            )
        if count() >= most:
            raise TicketRefused(
                f"queue {self.queue} has {most:,} open tickets (most_open: {most:,}); retry later"
            )

    def _insert(self, connection: sa.Connection, ticket: Ticket, *, least: int = 0) -> int | None:
        """Insert a ticket and return its id; None if a concurrent insert took the id."""
        row = {**_row(ticket), "queue": self.queue}
        newest = sa.func.coalesce(sa.func.max(TICKETS.c.id), 0)
        least = max(least, read_number(connection, TICKETS_AFTER_KEY))
        highest = sa.case((newest < least, least), else_=newest)
        number = sa.select(highest + 1).scalar_subquery()
        insert = sa.insert(TICKETS).values(id=number, **row).returning(TICKETS.c.id)
        try:
            with connection.begin_nested():
                return int(connection.execute(insert).scalar_one())
        except sa.exc.IntegrityError:
            return None


_SELECT_TENANCIES = sa.select(TENANCIES)


def _holders(connection: sa.Connection) -> dict[str, int]:
    """Map machines to the ids of the tickets that have them, over all queues."""
    has = TICKETS.c.state == TicketState.READY
    rows = connection.execute(sa.select(TICKETS.c.machine, TICKETS.c.id).where(has))
    return {row.machine: row.id for row in rows}


def _release(connection: sa.Connection, machine: str, now: datetime) -> None:
    """Write only the time of a machine's release. A run may be changing other columns."""
    same = TENANCIES.c.machine == machine
    row = connection.execute(_SELECT_TENANCIES.where(same)).first()
    if row:
        since = touch(_tenancies([row])[0], now).since.isoformat()
        connection.execute(sa.update(TENANCIES).where(same).values(since=since))


def _write(connection: sa.Connection, row: sa.Row[Any] | None, tenancy: Tenancy) -> bool:
    """Write a machine's record. Return False if another process has changed the record."""
    if row is not None:
        same = sa.update(TENANCIES).where(*_is_unchanged(TENANCIES, row))
        return connection.execute(same.values(_tenancy_row(tenancy))).rowcount > 0
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(TENANCIES).values(_tenancy_row(tenancy)))
    except sa.exc.IntegrityError:
        return False
    return True


def _is_unchanged(table: sa.Table, row: sa.Row[Any]) -> list[sa.ColumnElement[bool]]:
    """Return the condition that a row still has these values, to prevent lost updates."""
    read = row._mapping  # noqa: SLF001 - public in SQLAlchemy
    return [column.is_not_distinct_from(read[column]) for column in table.columns]


_TENANCY = [field.name for field in fields(Tenancy)]


def _tenancy_row(tenancy: Tenancy) -> dict[str, str | int]:
    return {
        **{name: getattr(tenancy, name) for name in _TENANCY},
        "since": tenancy.since.isoformat(),
        "first_used": tenancy.first_used.isoformat() if tenancy.first_used else "",
        "draining": int(tenancy.draining),
        "disabled": int(tenancy.disabled),
        "dirty": int(tenancy.dirty),
    }


def _row(ticket: Ticket) -> dict[str, str | int]:
    return {
        **{name: value for name, value in ticket._asdict().items() if name != "id"},
        "state": ticket.state.value,
        "tags": json.dumps(ticket.tags),
        "opened_at": ticket.opened_at.isoformat(),
        "heard_at": ticket.heard_at.isoformat(),
        "background": int(ticket.background),
        "lease": ticket.lease or 0,
        "ended_at": ticket.ended_at.isoformat() if ticket.ended_at else "",
        "granted": json.dumps(ticket.granted),
        "ready_at": ticket.ready_at.isoformat() if ticket.ready_at else "",
        "built": int(ticket.built),
    }


@reading_rows(TICKETS)
def _tickets(rows: Iterable[Sequence[Any]]) -> tuple[Ticket, ...]:
    return tuple(map(_ticket, rows))


def _ticket(row: Sequence[Any]) -> Ticket:
    # Read columns by position: a run reads thousands of rows, and look-ups by name are slow.
    number, _, state, tags, opened, heard, submitter, owner, team, sandbox, *rest = row
    priority, background, lease, machine, answer, because, ended, *rest = rest
    client, project, chroot, package, granted, note, ready, built = rest
    return Ticket(
        id=number,
        tags=_tags(tags),
        opened_at=_parse_time(opened),
        heard_at=_parse_time(heard),
        submitter=submitter,
        owner=owner,
        team=team,
        sandbox=sandbox,
        priority=priority,
        background=background != 0,
        lease=lease or None,
        state=_STATES[state],
        machine=machine,
        answer=answer,
        because=because,
        ended_at=_parse_time(ended) if ended else None,
        client=client,
        project=project,
        chroot=chroot,
        package=package,
        granted=None if granted == "null" else _tags(granted),
        note=note,
        ready_at=_parse_time(ready) if ready else None,
        built=built != 0,
    )


def _parse_time(written: str) -> datetime:
    return in_utc(datetime.fromisoformat(written))


_STATES = {state.value: state for state in TicketState}


@lru_cache(maxsize=1000)
def _tags(written: str) -> tuple[str, ...]:
    """Parse the tags of a ticket, with a cache because many tickets have equal tags."""
    return tuple(json.loads(written))


@reading_rows(TENANCIES)
def _tenancies(rows: Iterable[sa.Row[tuple[object, ...]]]) -> tuple[Tenancy, ...]:
    return tuple(
        Tenancy(
            machine=row.machine,
            since=_parse_time(row.since),
            pool=row.pool,
            sandbox=row.sandbox,
            uses=row.uses,
            first_used=_parse_time(row.first_used) if row.first_used else None,
            draining=bool(row.draining),
            disabled=bool(row.disabled),
            dirty=bool(row.dirty),
        )
        for row in rows
    )
