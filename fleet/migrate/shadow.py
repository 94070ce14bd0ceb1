"""Compare what a Resalloc did with what fleet would have done in its place.

Resalloc keeps no times. Hours and money are sums over observations of its database, each weighted
by its duration; both sides are measured in the same way.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import sqlalchemy as sa
from pydantic import Field

from fleet.errors import SourceUnreachable, needing
from fleet.model.plan import Plan
from fleet.model.tickets import Ticket, TicketState, close, read_sandbox
from fleet.model.values import Moment, Value
from fleet.schema.units import write_duration
from fleet.state.database import announced, read_url

_HOUR = 3600


class SeenTicket(Value):
    """A ticket that is open at Resalloc."""

    id: int
    tags: tuple[str, ...]
    sandbox: str = ""
    waits: bool = Field(description="Whether it has no machine yet.")


class Seen(Value):
    """What there is at a Resalloc."""

    tickets: tuple[SeenTicket, ...] = ()
    machines: dict[str, int] = Field(
        default_factory=dict, description="Pool to its machines that have not ended."
    )


class Side(Value):
    """What one of the two has at a moment."""

    waiting: int = Field(description="Tickets without a machine.")
    machines: dict[str, int] = Field(description="Pool to its machines, those that start too.")
    cost: Decimal = Field(description="What these cost an hour.")


class Look(Value):
    """Both sides at a moment; `seconds` is how long it stands for."""

    time: Moment
    seconds: int = Field(ge=0)
    opened: int = Field(description="Tickets that were not there at the look before.")
    currency: str
    unpriced: tuple[str, ...] = Field(description="Pools of Resalloc without a price of ours.")
    resalloc: Side
    fleet: Side


class Total(Value):
    """What one of the two came to in a day, in hours and money."""

    waited: Decimal = Field(description="Hours that tickets waited, all together.")
    machines: dict[str, Decimal] = Field(description="Pool to the hours of its machines.")
    cost: Decimal


class Day(Value):
    """One day in UTC, as far as it was watched."""

    date: str
    watched: int = Field(description="Seconds that looks stand for.")
    opened: int
    currency: str
    unpriced: tuple[str, ...]
    resalloc: Total
    fleet: Total


def look_of(seen: Seen, plan: Plan, *, waiting: int, opened: int, seconds: int) -> Look:
    """Return both sides once a plan was carried out."""
    known = {pool.pool: pool for pool in plan.pools}
    priced = {name: pool.price for name, pool in known.items() if "price" not in pool.not_known}
    ours = {name: pool.machines_after for name, pool in known.items()}
    theirs = {
        pool: priced[name] for pool in seen.machines if (name := _ours(pool, priced)) in priced
    }
    costs = [theirs.get(pool, Decimal(0)) * count for pool, count in seen.machines.items()]
    return Look(
        time=plan.time,
        seconds=seconds,
        opened=opened,
        currency=plan.currency,
        unpriced=tuple(sorted(seen.machines.keys() - theirs.keys())),
        resalloc=Side(
            waiting=sum(ticket.waits for ticket in seen.tickets),
            machines=seen.machines,
            cost=sum(costs, Decimal(0)),
        ),
        fleet=Side(
            waiting=waiting,
            machines={name: count for name, count in ours.items() if count},
            cost=sum((pool.cost_after for pool in known.values()), Decimal(0)),
        ),
    )


def _ours(pool: str, known: Container[str]) -> str:
    """Return fleet's name of a pool of Resalloc: machines of a cloud have no `_` in names."""
    return pool if pool in known else pool.lower().replace("_", "-")


def days_of(looks: Iterable[Look]) -> tuple[Day, ...]:
    """Return what both sides came to, day by day."""
    of_day: defaultdict[str, list[Look]] = defaultdict(list)
    for look in looks:
        of_day[f"{look.time:%Y-%m-%d}"].append(look)
    return tuple(_day(date, own) for date, own in sorted(of_day.items()))


def _day(date: str, looks: list[Look]) -> Day:
    return Day(
        date=date,
        watched=sum(look.seconds for look in looks),
        opened=sum(look.opened for look in looks),
        currency=looks[-1].currency,
        unpriced=tuple(sorted({pool for look in looks for pool in look.unpriced})),
        resalloc=_total([(look.seconds, look.resalloc) for look in looks]),
        fleet=_total([(look.seconds, look.fleet) for look in looks]),
    )


def _total(sides: list[tuple[int, Side]]) -> Total:
    machines: Counter[str] = Counter()
    for seconds, side in sides:
        machines.update({pool: count * seconds for pool, count in side.machines.items()})
    return Total(
        waited=_hours(sum(seconds * side.waiting for seconds, side in sides)),
        machines={pool: _hours(total) for pool, total in sorted(machines.items())},
        cost=sum((_hours(seconds) * side.cost for seconds, side in sides), Decimal(0)),
    )


def _hours(seconds: int) -> Decimal:
    return Decimal(seconds) / _HOUR


class Book(Protocol):
    """The tickets of a queue of ours."""

    def open(self, ticket: Ticket, *, most: int, most_of_submitter: int) -> Ticket:
        """Add a ticket and return it with its id."""

    def change(
        self, number: int, step: Callable[[Ticket], Ticket], now: datetime
    ) -> Ticket | None:
        """Take a step with a ticket."""

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the open tickets."""


class Mirror:
    """A queue of ours that holds just the tickets that are open at a Resalloc.

    What an earlier mirror left open is closed: its owner is unknown.
    """

    def __init__(self, book: Book, *, most: int) -> None:
        self._book = book
        self._most = most
        self._own: dict[int, int] = {}
        """Ticket of Resalloc to that of ours."""
        self._is_fresh = False

    def follow(self, seen: Seen, now: datetime) -> int:
        """Open what was opened there, close what ended there, and return how many are new."""
        if not self._is_fresh:
            for left in self._book.tickets():
                self._close(left.id, now)
            self._is_fresh = True
        new = [ticket for ticket in seen.tickets if ticket.id not in self._own]
        for number in self._own.keys() - {ticket.id for ticket in seen.tickets}:
            self._close(self._own.pop(number), now)
        there = {ticket.id for ticket in self._book.tickets()}
        for ticket in seen.tickets:
            # Where a machine of ours broke, its ticket has failed here, and still waits there.
            if self._own.get(ticket.id) not in there:
                self._own[ticket.id] = self._open(ticket, now)
        return len(new)

    def waiting(self) -> int:
        """Return how many tickets have no machine of ours yet."""
        return sum(ticket.state is TicketState.WAITING for ticket in self._book.tickets())

    def _open(self, seen: SeenTicket, now: datetime) -> int:
        owner, _, submitter = read_sandbox(seen.sandbox) or ("", "", "")
        ticket = Ticket(
            0,
            tuple(sorted(set(seen.tags))),
            opened_at=now,
            heard_at=now,
            submitter=submitter,
            owner=owner,
            sandbox=seen.sandbox,
        )
        return self._book.open(ticket, most=self._most, most_of_submitter=self._most).id

    def _close(self, number: int, now: datetime) -> None:
        self._book.change(number, partial(close, now=now), now)


def days_to_text(days: Iterable[Day]) -> str:
    """Return the days as a table each."""
    return "\n\n".join(map(_format_day, days)) or "no observations yet"


def days_to_json(days: Iterable[Day]) -> str:
    """Return the days with all that is known of them."""
    return json.dumps([day.model_dump(mode="json") for day in days], indent=1)


def _format_day(day: Day) -> str:
    rows = [
        ("", "Resalloc", "fleet"),
        ("tickets waited, total", *_both(day, lambda t: write_duration(round(t.waited * _HOUR)))),
        ("average per ticket", *_both(day, lambda total: _average(total, day.opened))),
        ("machines", *_both(day, lambda total: f"{sum(total.machines.values()):.2f} h")),
        *(_pool(day, pool) for pool in sorted({*day.resalloc.machines, *day.fleet.machines})),
        ("cost", *_both(day, lambda total: f"{total.cost:.2f} {day.currency}")),
    ]
    watched = f"observed for {write_duration(day.watched)}, {day.opened:,} tickets opened"
    lines = [f"{day.date} UTC: {watched}"]
    lines += [f"  {what:<24}{theirs:>14}{ours:>14}" for what, theirs, ours in rows]
    if day.unpriced:
        lines.append(f"  without a price, counted as 0: {', '.join(day.unpriced)}")
    return "\n".join(lines)


def _both(day: Day, write: Callable[[Total], str]) -> tuple[str, str]:
    return write(day.resalloc), write(day.fleet)


def _pool(day: Day, pool: str) -> tuple[str, str, str]:
    return (f"  {pool}", *_both(day, lambda total: f"{total.machines.get(pool, 0):.2f} h"))


def _average(total: Total, tickets: int) -> str:
    return write_duration(round(total.waited * _HOUR / tickets)) if tickets else "-"


_TICKETS = sa.text(
    "SELECT t.id, t.sandbox, t.resource_id, g.id FROM tickets t"
    " LEFT JOIN ticket_tags g ON g.ticket_id = t.id WHERE t.state = 'OPEN' ORDER BY t.id, g.id"
)
_MACHINES = sa.text("SELECT pool, count(*) FROM resources WHERE state <> 'ENDED' GROUP BY pool")
_LIMITED = sa.text("SET LOCAL statement_timeout = '30s'")


class ResallocDatabase:
    """The database behind the `db_url` of a Resalloc, SQLite or PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.engine = _engine(url)
        """Read-only."""

    def read(self) -> Seen:
        """Return the open tickets and the machines; SourceUnreachable if the database fails."""
        try:
            with self.engine.connect() as connection:
                if connection.dialect.name == "postgresql":
                    connection.execute(_LIMITED)
                tickets = connection.execute(_TICKETS).all()
                machines = connection.execute(_MACHINES).all()
        except sa.exc.SQLAlchemyError as error:
            # The wrapper repeats the statement; `orig` is the driver's own error.
            because = str(getattr(error, "orig", None) or type(error).__name__).splitlines()[0]
            raise SourceUnreachable(
                f"Resalloc's database does not answer: {because}; compare the URL with `db_url` "
                "in Resalloc's server.yaml"
            ) from None
        return Seen(
            tickets=_tickets([tuple(row) for row in tickets]),
            machines={str(pool): int(count) for pool, count in machines},
        )


def _tickets(rows: list[tuple[int, str | None, int | None, str | None]]) -> tuple[SeenTicket, ...]:
    tags: defaultdict[int, list[str]] = defaultdict(list)
    for number, _, _, tag in rows:
        tags[number] += [] if tag is None else [tag]
    known = {number: (sandbox, machine) for number, sandbox, machine, _ in rows}
    return tuple(
        SeenTicket(
            id=number, tags=tuple(tags[number]), sandbox=sandbox or "", waits=machine is None
        )
        for number, (sandbox, machine) in known.items()
    )


def _engine(text: str) -> sa.Engine:
    """Return what connects to read; no text of an error repeats the URL."""
    url = read_url(text)
    if url is None:
        raise SourceUnreachable(_NO_URL)
    pool = sa.NullPool
    if url.get_backend_name() == "postgresql":
        # Nothing is set at the start or for the session: a pooler may stand between.
        about = {"connect_timeout": 10, "prepare_threshold": None}
        url = url.set(drivername="postgresql+psycopg")
        with needing("postgres", "Resalloc's database", SourceUnreachable):
            engine = announced(sa.create_engine(url, poolclass=pool, connect_args=about))
            return engine.execution_options(postgresql_readonly=True)
    if url.get_backend_name() == "sqlite" and url.database:
        file = f"file:{quote(str(Path(url.database).absolute()))}"
        options = {"mode": "ro", "uri": "true"}
        return sa.create_engine(
            sa.URL.create("sqlite", database=file, query=options), poolclass=pool
        )
    raise SourceUnreachable(_NO_URL)


_NO_URL = (
    "not a URL of Resalloc's database; expected its `db_url`: sqlite:////PATH or "
    "postgresql://USER:PASSWORD@HOST/NAME (write @ in a password as %40)"
)
