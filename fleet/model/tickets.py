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
"""What a tag begins with that keeps the machines of one sandbox for its tickets."""
ALONE = " ticket "
"""What the sandbox of a ticket that names none begins with: no name begins with a blank."""


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
    """Return an id that a store known to be lost did not reach, even if it opened many at once."""
    return min(first_id(now) + _MAX_BURST, _MAX_START)


OPEN = frozenset({TicketState.WAITING, TicketState.READY})
ANYBODY = "anybody"
"""The client of `fleet serve` without tokens; a blank and its address may follow."""


class Ticket(NamedTuple):
    """A claim to one machine with these tags: a tuple, as a pass makes thousands."""

    id: int
    tags: tuple[str, ...]
    opened_at: datetime
    heard_at: datetime
    submitter: str = ""
    owner: str = ""
    team: str = ""
    sandbox: str = ""
    """Empty: no other ticket gets its machine."""
    priority: int = 0
    background: bool = False
    lease: int | None = None
    """Seconds without a word from its client after which it expires; None: it never does."""
    state: TicketState = TicketState.WAITING
    machine: str = ""
    answer: str = ""
    """What its client learns about the machine."""
    because: str = ""
    """Why it failed or expired."""
    ended_at: datetime | None = None
    client: str = ""
    """The client of `fleet serve` that took it; empty: it was opened at the command line.

    One without a token is `anybody ADDRESS`: no token's name has a blank.
    """
    project: str = ""
    chroot: str = ""
    package: str = ""
    """The build it is for, as `powerful` and `derive` match it; empty: unknown."""
    granted: tuple[str, ...] | None = None
    """The tags that its machine was assigned for, those of rules too; None: unknown."""
    note: str = ""
    """Why it waits, as of the last run; once it has a machine, which tags were dropped."""
    ready_at: datetime | None = None
    """When it got its machine; None: it has none, or an older fleet gave it."""
    built: bool = False
    """Its client reported that its build ran on the machine and succeeded."""

    @property
    def address(self) -> str:
        """Return the address of a client without a token; empty where there is none."""
        return self.client.partition(" ")[2]

    @property
    def is_open(self) -> bool:
        """Say whether it waits or has a machine."""
        return self.state in OPEN

    @property
    def counting(self) -> tuple[str, ...]:
        """Return the tags that count: those of its machine, else those it asks for."""
        return self.tags if self.granted is None else self.granted

    @property
    def effective_sandbox(self) -> str:
        """Return its sandbox; one of its own where it names none."""
        return self.sandbox or f"{ALONE}{self.id}"

    @property
    def build(self) -> str:
        """Return the name of its build as `powerful` matches it; empty where unknown."""
        parts = (self.owner, self.project, self.chroot, self.package)
        return "/".join(parts) if self.chroot else ""


@dataclass(frozen=True, slots=True)
class Given:
    """A machine for a ticket, and what its client learns about it."""

    ticket: int
    machine: str
    pool: str
    answer: str
    created_at: datetime | None
    """None: unknown; what is remembered of its name is of this machine."""
    tags: tuple[str, ...] | None = None
    """The tags that count, those of rules too; None: unknown."""
    note: str = ""
    """Which tags were dropped, and why."""


@dataclass(frozen=True, slots=True)
class Leased:
    """Which tickets got their machines, and why others did not get theirs."""

    tickets: tuple[int, ...] = ()
    refused: Mapping[int, str] = field(default_factory=dict)
    """Tickets that keep waiting, and what is wrong with their machines."""


def close(ticket: Ticket, now: datetime, *, built: bool = False) -> Ticket:
    """Return a ticket as its client closed it; what has ended stays as it ended.

    `built`: its client reports that its build succeeded.
    """
    closed = ticket._replace(built=built)
    return _end(closed, TicketState.CLOSED, now) if ticket.is_open else ticket


UNKNOWN_USER = "unknown"
"""The user of a ticket that keeps a machine whose own ticket a lost store knew."""


def unknown_ticket(machine: str, now: datetime) -> Ticket:
    """Return what keeps a machine that a forgotten ticket may use, until a person closes it."""
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
    """Return an open ticket whose client was just heard."""
    return ticket._replace(heard_at=max(now, ticket.heard_at)) if ticket.is_open else ticket


def claim(ticket: Ticket, now: datetime) -> Ticket:
    """Return an open ticket that a client took and now asks for: from here on it has no lease.

    A ticket that no client asks for expires: the answer with its id was lost.
    """
    return hear(ticket, now)._replace(lease=None) if ticket.is_open and ticket.lease else ticket


def expire(ticket: Ticket, now: datetime) -> Ticket:
    """Return a ticket as it is now: expired where its client was silent for its whole lease."""
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
    """Return an open ticket whose machine is lost, and why."""
    return _end(ticket, TicketState.FAILED, now, because) if ticket.is_open else ticket


def settled(ticket: Ticket, broken: Collection[str], now: datetime) -> Ticket:
    """Return a ticket as it is now: expired, or failed where its machine is a broken one."""
    if ticket.machine in broken:
        return fail(ticket, f"livechecks found its machine {ticket.machine} broken", now)
    return expire(ticket, now)


def task_in(chroot: str) -> str:
    """Return the task of a build in a chroot, as Copr's queue calls it; empty: unknown."""
    if not chroot:
        return ""
    return SOURCE_TASK if chroot == SOURCE_CHROOT else BUILD_TASK


def to_request(ticket: Ticket) -> Request:
    """Return a waiting ticket as work that waits for a worker."""
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
MOST_LETTERS = 200
"""More tags, and longer words, than these a ticket may not have."""


def find_fault(tags: Collection[str], names: Collection[str]) -> str:
    """Return what is wrong with the tags and names of a ticket; empty: nothing."""
    if not tags:
        return "a ticket needs at least one tag"
    if len(tags) > MOST_TAGS:
        return f"a ticket may have {MOST_TAGS} tags, not {len(tags):,}"
    faults = (find_fault_of(word) for word in (*tags, *names))
    return next(filter(None, faults), "" if all(tags) else "a tag cannot be empty")


def find_fault_of(word: str) -> str:
    """Return why a word cannot be a tag or name; empty: it can."""
    if len(word) > MOST_LETTERS:
        return f"{word[:20]!r}… is {len(word):,} characters long (at most {MOST_LETTERS})"
    if not word.isprintable() or word != word.strip():
        return f"{word[:20]!r} has surrounding blanks or unprintable characters"
    return ""


def _end(ticket: Ticket, state: TicketState, now: datetime, because: str = "") -> Ticket:
    return ticket._replace(state=state, because=because, ended_at=now)


@dataclass(frozen=True, slots=True)
class Limit:
    """How many machines tickets may have at once: each of somebody's, or all together."""

    path: tuple[str | int, ...]
    most: int
    of: str = "total"
    """A field of Ticket, or `total`."""

    def whose(self, ticket: Ticket) -> str:
        """Return whose machines a ticket counts to."""
        if self.of == "sandbox":
            return ticket.effective_sandbox
        return "" if self.of == "total" else getattr(ticket, self.of)

    def sentence(self, who: str, held: int, before: int = 0) -> str:
        """Return the limit and its figures: machines in use, tickets that wait before it."""
        whom = "" if self.of == "total" else f" for {who.strip() or f'tickets without {self.of}'}"
        waiting = f", {before} waiting before it" if before else ""
        return f"{'.'.join(map(str, self.path))} is {self.most}{whom}: {held} in use{waiting}"


class Sandbox(NamedTuple):
    """What Copr writes into the name of a sandbox: OWNER/PROJECT--SUBMITTER."""

    owner: str
    project: str
    submitter: str


BUILD = "build:"
"""The prefix of the tag by which a client names the build of its ticket."""


class Build(NamedTuple):
    """A build, as `powerful` matches its name."""

    owner: str
    project: str
    chroot: str
    package: str
    """Empty for a source build whose package is not known yet."""


def split_build(tags: Iterable[str]) -> tuple[list[str], Build | None]:
    """Return the tags without build:OWNER/PROJECT/CHROOT/PACKAGE, and that build.

    Without exactly one tag of this form the build is None, and all tags are kept.
    """
    known = list(dict.fromkeys(tags))
    named = [tag for tag in known if tag.startswith(BUILD)]
    parts = named[0].removeprefix(BUILD).split("/") if len(named) == 1 else []
    if len(parts) != len(Build._fields) or not all(parts[:-1]) or any(map(find_fault_of, parts)):
        return known, None
    return [tag for tag in known if tag != named[0]], Build(*parts)


def read_sandbox(sandbox: str) -> Sandbox | None:
    """Return what stands in OWNER/PROJECT--SUBMITTER, as Copr calls sandboxes."""
    project, _, submitter = sandbox.rpartition("--")
    owner, _, name = project.partition("/")
    return Sandbox(owner, name, submitter) if owner and name and submitter else None


_SHOWN = 40


def bounded(name: str) -> str:
    """Return a name as a ticket may have it: one that is too long is known by its digest.

    A client that is refused for it would retry for ever.
    """
    if not find_fault_of(name):
        return name
    begin = "".join(letter for letter in name[:_SHOWN] if letter.isprintable())
    return f"{begin.strip()}…{digest(name)[:32]}"
