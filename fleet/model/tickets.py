"""Tickets, with which clients get machines from queues that fleet itself manages.

A ticket waits, is ready when it has a machine, and ends as closed, failed or expired. An ended
ticket never changes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from fleet.model.facts import Request
from fleet.model.values import digest
from fleet.schema.rules import BUILD_TASK, SOURCE_CHROOT, SOURCE_TASK
from fleet.schema.units import TAG_PATTERN, follows, write_duration

SANDBOX = "sandbox:"
"""Prefix of the tag that reserves a machine for the tickets of one sandbox."""
ALONE = " ticket "
"""Prefix of the sandbox of a ticket without a sandbox. No real sandbox starts with a blank."""


class TicketState(StrEnum):
    """The state of a ticket."""

    WAITING = "waiting"
    READY = "ready"  # it has a machine
    CLOSED = "closed"  # its client closed it
    FAILED = "failed"  # its machine is gone or broken
    EXPIRED = "expired"  # its client was silent for the whole lease


_IDS_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_MAX_BURST = 86_400
"""Assumed maximum of tickets that a store opened beyond one ticket per second of its life."""
_MAX_START = 2**31 - 2**24
"""Maximum first id: clients accept ids below 2^31, so that 16 million ids remain."""


def first_id(now: datetime) -> int:
    """Return the id after which a new store starts: the seconds since 2020.

    A lost store opened less than one ticket per second of its life, so all its ids are lower. The
    start stays below 2^31 until 2087.
    """
    return min(max(0, int((now - _IDS_FROM).total_seconds())), _MAX_START)


def highest_id_of_lost(now: datetime) -> int:
    """Return an id above all ids of a lost store, even if it opened many tickets in a burst."""
    return min(first_id(now) + _MAX_BURST, _MAX_START)


OPEN = frozenset({TicketState.WAITING, TicketState.READY})
ANYBODY = "anybody"
"""Client name in a `fleet serve` without tokens. A blank and the address may follow."""


class Ticket(NamedTuple):
    """A claim to a machine with these tags. It is a tuple, for fast creation of thousands."""

    id: int
    tags: tuple[str, ...]
    opened_at: datetime
    heard_at: datetime
    submitter: str = ""
    owner: str = ""
    team: str = ""
    sandbox: str = ""
    """Later tickets of the same sandbox may use the machine. Empty: no other ticket may use it."""
    priority: int = 0
    background: bool = False
    lease: int | None = None
    """Maximum silence of the client in seconds before the ticket expires; None: no maximum."""
    state: TicketState = TicketState.WAITING
    machine: str = ""
    answer: str = ""
    """Connection data of the machine, for the client."""
    because: str = ""
    """Reason why the ticket failed or expired."""
    ended_at: datetime | None = None
    client: str = ""
    """Client of `fleet serve` that opened the ticket; empty if opened on the command line.

    A client without a token is `anybody ADDRESS`; names of tokens contain no blank.
    """
    project: str = ""
    chroot: str = ""
    package: str = ""
    """Package in the build's name, as `powerful` and `derive` match it; empty if unknown."""
    granted: tuple[str, ...] | None = None
    """Tags for which the machine was assigned, including those that rules added; None: unknown."""
    note: str = ""
    """Why the ticket waits, as of the last run. Once it has a machine: the dropped tags."""
    ready_at: datetime | None = None
    """Time when the machine was assigned; None without a machine or if an old version did it."""
    built: bool = False
    """True if the client reported that its build ran on the machine and succeeded."""

    @property
    def address(self) -> str:
        """Return the IP address of a client without a token; empty for clients with a token."""
        return self.client.partition(" ")[2]

    @property
    def is_open(self) -> bool:
        """Return whether the ticket waits or has a machine."""
        return self.state in OPEN

    @property
    def counting(self) -> tuple[str, ...]:
        """Return the tags that limits count: the granted tags; if unknown, the requested tags."""
        return self.tags if self.granted is None else self.granted

    @property
    def effective_sandbox(self) -> str:
        """Return the sandbox of the ticket, or a sandbox for this ticket only."""
        return self.sandbox or f"{ALONE}{self.id}"

    @property
    def build(self) -> str:
        """Return the name of the build, as `powerful` matches it; empty if unknown."""
        parts = (self.owner, self.project, self.chroot, self.package)
        return "/".join(parts) if self.chroot else ""


@dataclass(frozen=True, slots=True)
class Given:
    """The assignment of a machine to a ticket, with the connection data for the client."""

    ticket: int
    machine: str
    pool: str
    answer: str
    created_at: datetime | None
    """Creation time of the machine; None if unknown, so that all records of this name count."""
    tags: tuple[str, ...] | None = None
    """Effective tags, including those that rules added; None if unknown."""
    note: str = ""
    """The dropped tags, with the reasons."""


@dataclass(frozen=True, slots=True)
class Leased:
    """The tickets that got machines, and the reasons why other tickets still wait."""

    tickets: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    """Id of a ticket that still waits to the problem of its machine."""


def close(ticket: Ticket, now: datetime, *, built: bool = False) -> Ticket:
    """Return a ticket as closed by its client. An ended ticket is returned unchanged.

    `built`: the client reports that its build succeeded.
    """
    closed = ticket._replace(built=built)
    return _end(closed, TicketState.CLOSED, now) if ticket.is_open else ticket


UNKNOWN_USER = "unknown"
"""User of a ticket that keeps a machine whose real ticket may have been in a lost store."""


def unknown_ticket(machine: str, now: datetime) -> Ticket:
    """Return a ticket that keeps a machine until an operator closes the ticket."""
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
    """Return an open ticket with `now` as the last contact of its client."""
    return ticket._replace(heard_at=max(now, ticket.heard_at)) if ticket.is_open else ticket


def claim(ticket: Ticket, now: datetime) -> Ticket:
    """Return a ticket without its lease, at the first call of its client.

    If the client never calls, it did not receive the id, and the ticket expires by the lease.
    """
    return hear(ticket, now)._replace(lease=None) if ticket.is_open and ticket.lease else ticket


def expire(ticket: Ticket, now: datetime) -> Ticket:
    """Return the ticket, as expired if its client was silent for the whole lease."""
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
    """Return an open ticket as failed, with the reason why its machine was lost."""
    return _end(ticket, TicketState.FAILED, now, because) if ticket.is_open else ticket


def settled(ticket: Ticket, broken: Collection[str], now: datetime) -> Ticket:
    """Return the ticket, as failed if its machine is broken, or as expired if its lease ended."""
    if ticket.machine in broken:
        return fail(ticket, f"livechecks found its machine {ticket.machine} broken", now)
    return expire(ticket, now)


def task_in(chroot: str) -> str:
    """Return the task of a build by the name of its Copr chroot; empty without a chroot."""
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
        # Rules regard a request with a project but without a chroot as a source build.
        project=(ticket.chroot and ticket.project) or None,
        chroot=ticket.chroot or None,
        package=ticket.package or None,
        team=ticket.team or None,
        sandbox=ticket.effective_sandbox,
    )


MOST_TAGS = 50
"""Maximum number of tags of a ticket."""
MOST_LETTERS = 200
"""Maximum length of a tag or name in characters."""


def find_fault(tags: Collection[str], names: Collection[str]) -> str:
    """Return the first problem of a ticket's tags and names; empty if all are valid."""
    if not tags:
        return "a ticket needs at least one tag"
    if len(tags) > MOST_TAGS:
        return f"a ticket may have {MOST_TAGS} tags, not {len(tags):,}"
    faults = [find_fault_of(word) for word in (*tags, *names)]
    faults += [f"tag {tag[:20]!r} has a blank" for tag in tags if not follows(TAG_PATTERN, tag)]
    return next(filter(None, faults), "") if all(tags) else "a tag cannot be empty"


def find_fault_of(word: str) -> str:
    """Return why a word is not a valid tag or name; empty if it is valid."""
    if len(word) > MOST_LETTERS:
        return f"{word[:20]!r}… is {len(word):,} characters long (at most {MOST_LETTERS})"
    if not word.isprintable() or word != word.strip():
        return f"{word[:20]!r} has surrounding blanks or unprintable characters"
    return ""


def _end(ticket: Ticket, state: TicketState, now: datetime, because: str = "") -> Ticket:
    return ticket._replace(state=state, because=because, ended_at=now)


@dataclass(frozen=True, slots=True)
class Limit:
    """Maximum number of machines that tickets use at the same time, per owner or in total."""

    path: tuple[str | int, ...]
    most: int
    of: str = "total"
    """The field of Ticket whose equal values are counted together, or `total`."""

    def whose(self, ticket: Ticket) -> str:
        """Return the user or other owner to whose limit a ticket counts; empty for the total."""
        if self.of == "sandbox":
            return ticket.effective_sandbox
        return "" if self.of == "total" else getattr(ticket, self.of)

    def sentence(self, who: str, held: int, before: int = 0) -> str:
        """Return a sentence with the limit, the machines in use, and the tickets ahead."""
        whom = "" if self.of == "total" else f" for {who.strip() or f'tickets without {self.of}'}"
        waiting = f", {before} waiting before it" if before else ""
        return f"{'.'.join(map(str, self.path))} is {self.most}{whom}: {held} in use{waiting}"


class Sandbox(NamedTuple):
    """The parts of the name of a Copr sandbox: OWNER/PROJECT--SUBMITTER."""

    owner: str
    project: str
    submitter: str


BUILD = "build:"
"""Prefix of the tag with which a client names the build of its ticket."""


class BuildName(NamedTuple):
    """The parts of the name of a build, as `powerful` matches it."""

    owner: str
    project: str
    chroot: str
    package: str
    """Name of the package; empty for a source build whose package is still unknown."""


def split_build(tags: Iterable[str]) -> tuple[list[str], BuildName | None]:
    """Return the tags without build:OWNER/PROJECT/CHROOT/PACKAGE, and that build's name.

    Unless exactly one tag has this form, all tags are returned and the name is None.
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
    """Parse the name of a Copr sandbox, OWNER/PROJECT--SUBMITTER; None for other names."""
    project, _, submitter = sandbox.rpartition("--")
    owner, _, name = project.partition("/")
    return Sandbox(owner, name, submitter) if owner and name and submitter else None


_SHOWN = 40


def bounded(name: str) -> str:
    """Return a name of valid length for a ticket. A long name is cut and gets its digest.

    If the name were refused, its client would retry indefinitely.
    """
    if not find_fault_of(name):
        return name
    begin = "".join(letter for letter in name[:_SHOWN] if letter.isprintable())
    return f"{begin.strip()}…{digest(name)[:32]}"
