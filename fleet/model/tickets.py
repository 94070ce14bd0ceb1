"""A ticket and its states, in queues where fleet itself assigns machines.

A ticket waits, is ready when it has a machine, and ends closed, failed or expired; an ended ticket
never changes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from fleet.model.facts import Request
from fleet.model.values import digest
from fleet.schema.rules import BUILD_TASK, SOURCE_CHROOT, SOURCE_TASK
from fleet.schema.units import write_duration

SANDBOX = "sandbox:"
"""Prefix of the tag that reserves machines for the tickets of one sandbox."""
ALONE = " ticket "
"""Prefix of the sandbox of a ticket without one; no other name starts with a blank."""


class TicketState(StrEnum):
    """The state of a ticket."""

    WAITING = "waiting"
    READY = "ready"  # it has a machine
    CLOSED = "closed"  # by its client
    FAILED = "failed"  # its machine is gone or does not work
    EXPIRED = "expired"  # its client was silent for as long as its lease


_IDS_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_MAX_BURST = 86_400
"""Maximum number of tickets that a lost store opened beyond one per second of its life."""
_MAX_START = 2**31 - 2**24
"""Maximum start of ids: clients take ids below 2^31, and 16 million remain to be given."""


def first_id(now: datetime) -> int:
    """Return the id after which the ids of a new store start: the seconds since 2020.

    A store that was lost without a trace opened less than one ticket per second of its life, so
    it gave only lower ids. They stay below 2^31 until 2087.
    """
    return min(max(0, int((now - _IDS_FROM).total_seconds())), _MAX_START)


def highest_id_of_lost(now: datetime) -> int:
    """Return an id above all ids of a lost store, even after a burst of tickets."""
    return min(first_id(now) + _MAX_BURST, _MAX_START)


OPEN = frozenset({TicketState.WAITING, TicketState.READY})
ANYBODY = "anybody"
"""The client of `fleet serve` without tokens; a blank and its address may follow."""


class Ticket(NamedTuple):
    """A claim to one machine with these tags; a tuple for speed, as a pass creates thousands."""

    id: int
    tags: tuple[str, ...]
    opened_at: datetime
    heard_at: datetime
    submitter: str = ""
    owner: str = ""
    team: str = ""
    sandbox: str = ""
    """Sandbox whose tickets may share its machine; empty: no other ticket gets the machine."""
    priority: int = 0
    background: bool = False
    lease: int | None = None
    """Seconds of its client's silence after which it expires; None: it never expires."""
    state: TicketState = TicketState.WAITING
    machine: str = ""
    answer: str = ""
    """Information about the machine for its client."""
    because: str = ""
    """Reason why it failed or expired."""
    ended_at: datetime | None = None
    client: str = ""
    """The client of `fleet serve` that took it; empty: it was opened at the command line.

    A client without a token is `anybody ADDRESS`; names of tokens have no blank.
    """
    project: str = ""
    chroot: str = ""
    package: str = ""
    """Name of its build, as `powerful` and `derive` match it; empty: unknown."""
    granted: tuple[str, ...] | None = None
    """Tags for which its machine was assigned, including tags of rules; None: unknown."""
    note: str = ""
    """While waiting, the reason as of the last run; with a machine, the dropped tags."""
    ready_at: datetime | None = None
    """Time of its assignment; None without a machine or if an older fleet assigned it."""
    built: bool = False
    """Its client reported that its build ran on the machine and succeeded."""

    @property
    def address(self) -> str:
        """Return the address of a client without a token; empty for other clients."""
        return self.client.partition(" ")[2]

    @property
    def is_open(self) -> bool:
        """Return whether the ticket waits or has a machine."""
        return self.state in OPEN

    @property
    def counting(self) -> tuple[str, ...]:
        """Return the effective tags: those of its machine, else the requested ones."""
        return self.tags if self.granted is None else self.granted

    @property
    def effective_sandbox(self) -> str:
        """Return its sandbox; without a name, a sandbox of its own."""
        return self.sandbox or f"{ALONE}{self.id}"

    @property
    def build(self) -> str:
        """Return the name of its build as `powerful` matches it; empty if unknown."""
        parts = (self.owner, self.project, self.chroot, self.package)
        return "/".join(parts) if self.chroot else ""


@dataclass(frozen=True, slots=True)
class Given:
    """A machine for a ticket, and the information for its client."""

    ticket: int
    machine: str
    pool: str
    answer: str
    created_at: datetime | None
    """Creation time; None: unknown, so every record of its name counts as this machine's."""
    tags: tuple[str, ...] | None = None
    """Effective tags, including tags of rules; None: unknown."""
    note: str = ""
    """Dropped tags with reasons."""


@dataclass(frozen=True, slots=True)
class Leased:
    """The assigned machines of tickets, and the reasons for unassigned tickets."""

    tickets: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    """Ticket that keeps waiting to the problem of its machine."""


def close(ticket: Ticket, now: datetime, *, built: bool = False) -> Ticket:
    """Return a ticket closed by its client; an ended ticket is returned unchanged.

    `built`: its client reports that its build succeeded.
    """
    closed = ticket._replace(built=built)
    return _end(closed, TicketState.CLOSED, now) if ticket.is_open else ticket


UNKNOWN_USER = "unknown"
"""User of the ticket that keeps a machine whose original ticket was in a lost store."""


def unknown_ticket(machine: str, now: datetime) -> Ticket:
    """Return a ticket that keeps a machine of a possible lost ticket, until a user closes it."""
    return Ticket(
        id=0,
        tags=(),
        opened_at=now,
        heard_at=now,
        submitter=UNKNOWN_USER,
        owner=UNKNOWN_USER,
        state=TicketState.READY,
        machine=machine,
        note="older than this store: a ticket that it does not know may use the machine",
        ready_at=now,
    )


def hear(ticket: Ticket, now: datetime) -> Ticket:
    """Return an open ticket with its client's last contact at `now`."""
    return ticket._replace(heard_at=max(now, ticket.heard_at)) if ticket.is_open else ticket


def claim(ticket: Ticket, now: datetime) -> Ticket:
    """Return a ticket without the lease that it has until the first call of its client.

    If that call never comes, the response with its id was lost, and the ticket expires.
    """
    return hear(ticket, now)._replace(lease=None) if ticket.is_open and ticket.lease else ticket


def expire(ticket: Ticket, now: datetime) -> Ticket:
    """Return the current ticket: expired if its client was silent for the whole lease."""
    if not ticket.is_open or ticket.lease is None:
        return ticket
    silent = int((now - ticket.heard_at).total_seconds())
    if silent < ticket.lease:
        return ticket
    because = (
        f"its client has been silent for {write_duration(silent)}; its lease is "
        f"{write_duration(ticket.lease)}"
    )
    return _end(ticket, TicketState.EXPIRED, now, because)


def fail(ticket: Ticket, because: str, now: datetime) -> Ticket:
    """Return an open ticket as failed, with the reason why its machine is lost."""
    return _end(ticket, TicketState.FAILED, now, because) if ticket.is_open else ticket


def settled(ticket: Ticket, broken: Collection[str], now: datetime) -> Ticket:
    """Return the current ticket: expired after its lease, failed if its machine is broken."""
    if ticket.machine in broken:
        return fail(ticket, f"livechecks found its machine {ticket.machine} broken", now)
    return expire(ticket, now)


def task_in(chroot: str) -> str:
    """Return the task of a build in a chroot, by the name in Copr's queue; empty if unknown."""
    if not chroot:
        return ""
    return SOURCE_TASK if chroot == SOURCE_CHROOT else BUILD_TASK


def to_request(ticket: Ticket) -> Request:
    """Return a waiting ticket as a request."""
    return Request(
        id=str(ticket.id),
        task=task_in(ticket.chroot),
        required=ticket.tags,
        provided=(SANDBOX + ticket.sandbox,) if ticket.sandbox else (),
        asked=dict.fromkeys(ticket.tags, "ticket"),
        priority=ticket.priority - ticket.background,
        pending_since=ticket.opened_at,
        requester=ticket.submitter or None,
        owner=ticket.owner or None,
        # Without its chroot it would be taken for a source build.
        project=(ticket.chroot and ticket.project) or None,
        chroot=ticket.chroot or None,
        package=ticket.package or None,
        team=ticket.team or None,
        sandbox=ticket.effective_sandbox,
    )


MOST_TAGS = 50
"""Limit of tags of a ticket."""
MOST_LETTERS = 200
"""Limit of characters of a tag or name."""


def find_fault(tags: Collection[str], names: Collection[str]) -> str:
    """Return the first problem of a ticket's tags and names; empty if valid."""
    if not tags:
        return "a ticket needs at least one tag"
    if len(tags) > MOST_TAGS:
        return f"a ticket may have {MOST_TAGS} tags, not {len(tags):,}"
    faults = (find_fault_of(word) for word in (*tags, *names))
    return next(filter(None, faults), "" if all(tags) else "a tag cannot be empty")


def find_fault_of(word: str) -> str:
    """Return the reason why a word is no valid tag or name; empty if valid."""
    if len(word) > MOST_LETTERS:
        return f"{word[:20]!r}… is {len(word):,} characters long (at most {MOST_LETTERS})"
    if not word.isprintable() or word != word.strip():
        return f"{word[:20]!r} has surrounding blanks or unprintable characters"
    return ""


def _end(ticket: Ticket, state: TicketState, now: datetime, because: str = "") -> Ticket:
    return ticket._replace(state=state, because=because, ended_at=now)


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit of machines of tickets at the same time: per user or other owner, or in total."""

    path: tuple[str | int, ...]
    most: int
    of: str = "total"
    """A field of Ticket, or `total`."""

    def whose(self, ticket: Ticket) -> str:
        """Return the owner to whose machines a ticket counts."""
        if self.of == "sandbox":
            return ticket.effective_sandbox
        return "" if self.of == "total" else getattr(ticket, self.of)

    def sentence(self, who: str, held: int, before: int = 0) -> str:
        """Return the limit and its figures: machines in use, tickets that wait before it."""
        whom = "" if self.of == "total" else f" for {who.strip() or f'tickets without {self.of}'}"
        waiting = f", {before} waiting before it" if before else ""
        return f"{'.'.join(map(str, self.path))} is {self.most}{whom}: {held} in use{waiting}"


class Sandbox(NamedTuple):
    """The parts of Copr's name of a sandbox: OWNER/PROJECT--SUBMITTER."""

    owner: str
    project: str
    submitter: str


BUILD = "build:"
"""Prefix of the tag with which a client names the build of its ticket."""


class BuildName(NamedTuple):
    """The parts of a build's name, as `powerful` matches it."""

    owner: str
    project: str
    chroot: str
    package: str
    """Package; empty for a source build whose package is not known yet."""


def split_build(tags: Iterable[str]) -> tuple[list[str], BuildName | None]:
    """Return the tags without build:OWNER/PROJECT/CHROOT/PACKAGE, and that build.

    Without exactly one tag of this form the build is None, and all tags are kept.
    """
    known = list(dict.fromkeys(tags))
    named = [tag for tag in known if tag.startswith(BUILD)]
    parts = named[0].removeprefix(BUILD).split("/") if len(named) == 1 else []
    if (
        len(parts) != len(BuildName._fields)
        or not all(parts[:-1])
        or any(map(find_fault_of, parts))
    ):
        return known, None
    return [tag for tag in known if tag != named[0]], BuildName(*parts)


def read_sandbox(sandbox: str) -> Sandbox | None:
    """Parse Copr's name of a sandbox, OWNER/PROJECT--SUBMITTER; None for other names."""
    project, _, submitter = sandbox.rpartition("--")
    owner, _, name = project.partition("/")
    return Sandbox(owner, name, submitter) if owner and name and submitter else None


_SHOWN = 40


def bounded(name: str) -> str:
    """Return a name of valid length for a ticket: a longer one is shortened with its digest.

    A client that is refused for a long name would retry indefinitely.
    """
    if not find_fault_of(name):
        return name
    begin = "".join(letter for letter in name[:_SHOWN] if letter.isprintable())
    return f"{begin.strip()}…{digest(name)[:32]}"
