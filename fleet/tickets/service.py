"""Handle the calls of Resalloc's clients: take, collect, wait for and close a ticket.

An unmodified client retries indefinitely after a fault. So a call fails only if a retry may help
(too many tickets, unreachable store) and for malformed tags. A ticket with a tag that no pool
provides waits, and its client can close the ticket.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol
from xmlrpc.client import Fault

from fleet.errors import FleetError, TicketRefused
from fleet.model.tickets import (
    Ticket,
    TicketState,
    bounded,
    claim,
    close,
    expire,
    fail,
    find_fault,
    read_sandbox,
    split_build,
)
from fleet.ports import Clock
from fleet.schema.model import Fleet, TicketQueue
from fleet.tagrules.requests import Memberships
from fleet.tickets.connections import Places
from fleet.tickets.reasons import judge, why_waits

_REFUSED_CODE = 1
_NO_SUCH_CALL_CODE = -32601
_MAX_WAIT_SECONDS = 300
_POLL_SECONDS = 5
_CALLS = "takeTicket(tags[, sandbox]), collectTicket(id), waitTicket(id), closeTicket(id)"


class Book(Protocol):
    """Storage of a queue's tickets. Each change is atomic."""

    def open(
        self, ticket: Ticket, *, most: int, most_of_submitter: int, most_of_address: int
    ) -> Ticket:
        """Add a ticket and return it with its id; raises TicketRefused if too many are open."""

    def tickets(self) -> tuple[Ticket, ...]:
        """Return the open tickets."""

    def change(
        self, number: int, step: Callable[[Ticket], Ticket], now: datetime
    ) -> Ticket | None:
        """Apply `step` to a ticket and return the result; None if no ticket has this id."""


class TicketCalls:
    """Handler of calls from clients of a queue. `tell` wakes clients whose wait is over."""

    def __init__(
        self,
        queue: str,
        book: Book,
        clock: Clock,
        fleet: Callable[[], Fleet],
        ring: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._book = book
        self._clock = clock
        self._fleet = fleet
        self._ring = ring
        self.members: Callable[[], Memberships] = dict
        """Function that returns the members of user groups, for the rule `asked_by`."""
        # Serialize changes, because SQLite has one writer and handles contention badly.
        self._turn = threading.Lock()
        self._waiting: defaultdict[int, list[threading.Event]] = defaultdict(list)
        self._places = Places(1_500, share=2)
        self.has_hung_up: Callable[[], bool] = lambda: False
        """Function that returns whether the client of this thread's call has disconnected."""
        self._ended = False

    def answer(self, client: str, name: str, arguments: Sequence[Any]) -> object:
        """Handle a client's call and return the result; raises Fault if the call is refused."""
        unknown = Fault(_NO_SUCH_CALL_CODE, f"no such call, or other arguments; known: {_CALLS}")
        try:
            match name, *arguments:
                case _, bool():  # for Python, it is an integer
                    raise unknown
                case "takeTicket", list() as tags:
                    return self._take(client, tags, "")
                case "takeTicket", list() as tags, (str() | None) as sandbox:
                    return self._take(client, tags, sandbox or "")
                case "collectTicket", int() | str() as number:
                    return collected(self._find_own(client, number))
                case "waitTicket", int() | str() as number:
                    return self._wait(client, number)
                case "closeTicket", int() | str() as number:
                    return self._close(client, number)
                case _:
                    raise unknown
        except FleetError as error:
            raise Fault(_REFUSED_CODE, str(error)) from error

    def bound_waiting(self, total: int) -> None:
        """Limit the number of waiting calls. One client can never use all of them."""
        self._places = Places(total, share=2)

    @property
    def waiting(self) -> int:
        """Return the number of calls that wait for a machine."""
        with self._turn:
            return sum(map(len, self._waiting.values()))

    def tell(self) -> None:
        """Wake the calls of clients whose ticket no longer waits."""
        with self._turn:
            asked = set(self._waiting)
            if not asked:
                return
            waiting = {t.id for t in self._book.tickets() if t.state is TicketState.WAITING}
            self._wake(asked - waiting)

    def end(self) -> None:
        """Wake all waiting calls, so that their clients call again."""
        with self._turn:
            self._ended = True
            self._wake(set(self._waiting))

    def _take(self, client: str, tags: list[Any], sandbox: str) -> int:
        if not all(isinstance(tag, str) for tag in tags):
            raise TicketRefused("no ticket was opened: a tag is a string")
        fleet = self._fleet()
        desk = self._desk(fleet)
        name = client_name(client)
        owner, project, submitter = read_sandbox(sandbox) or (name, "", name)
        build = None
        if name in desk.builds_named_by:
            tags, build = split_build(tags)
        if build is not None:
            owner, project = build.owner, build.project
        now = self._clock.now()
        asked = Ticket(
            0,
            tuple(sorted(set(tags))),
            opened_at=now,
            heard_at=now,
            submitter=bounded(submitter),
            owner=bounded(owner),
            sandbox=bounded(sandbox),
            project=bounded(project),
            chroot=build.chroot if build else "",
            package=build.package if build else "",
            lease=desk.claim_within,
            client=client,
        )
        if fault := find_fault(asked.tags, ()):
            raise TicketRefused(f"no ticket was opened: {fault}")
        judged = judge(fleet, asked, self.members(), now.date())
        if judged.denied:
            because = "; ".join(each.because for each in judged.denied)
            if judged.unknown:
                raise TicketRefused(f"no ticket was opened: {because}")
            # After a fault the client would retry indefinitely, so return a failed ticket instead.
            asked = fail(asked, because, now)
        with self._turn:
            ticket = self._book.open(
                asked,
                most=desk.most_open,
                most_of_submitter=desk.most_open_per_submitter,
                most_of_address=desk.most_open_per_address,
            )
        self._ring()
        return ticket.id

    def _wait(self, client: str, number: int | str) -> str:
        """Wait for a machine and return its output; empty if the ticket never gets a machine."""
        with self._event(client, number) as event:
            ticket = self._find_own(client, number)
            if ticket is not None and ticket.state is TicketState.WAITING:
                self._wait_for(event)
                ticket = self._find_own(client, number)
            if ticket is not None and ticket.state is TicketState.WAITING:
                raise TicketRefused(f"ticket {ticket.id} waits: {self._explain_wait(ticket)}")
        return output(ticket) if ticket else ""

    def _wait_for(self, event: threading.Event) -> None:
        """Wait up to five minutes for the event, or until the client disconnects."""
        for _ in range(_MAX_WAIT_SECONDS // _POLL_SECONDS):
            if event.wait(_POLL_SECONDS) or self.has_hung_up():
                return

    def _explain_wait(self, ticket: Ticket) -> str:
        fleet = self._fleet()
        self._desk(fleet)
        with self._turn:
            others = self._book.tickets()
        return why_waits(fleet, self._queue, ticket, others)

    def _close(self, client: str, number: int | str) -> bool:
        """Close a ticket. Return False if the ticket was not open."""
        ticket = self._find_own(client, number)
        if ticket is None or not ticket.is_open:
            return False
        now = self._clock.now()
        with self._turn:
            self._book.change(ticket.id, lambda each: close(each, now), now)
            self._wake({ticket.id})
        self._ring()
        return True

    def _find_own(self, client: str, number: int | str) -> Ticket | None:
        """Return this client's ticket and record the call; None if it has no such ticket."""
        found = read_number(number)
        if found is None:
            return None
        now = self._clock.now()

        def is_own(ticket: Ticket) -> bool:
            return client_name(ticket.client) == client_name(client)

        def step(ticket: Ticket) -> Ticket:
            return claim(expire(ticket, now), now) if is_own(ticket) else ticket

        with self._turn:
            ticket = self._book.change(found, step, now)
        return ticket if ticket and is_own(ticket) else None

    def _desk(self, fleet: Fleet) -> TicketQueue:
        desk = fleet.queues.get(self._queue)
        if isinstance(desk, TicketQueue):
            return desk
        raise TicketRefused(f"fleet.yaml has no queue {self._queue} of kind tickets")

    @contextmanager
    def _event(self, client: str, number: int | str) -> Iterator[threading.Event]:
        """Yield an event for the end of a ticket's wait; raises TicketRefused if too many wait."""
        event = threading.Event()
        key = read_number(number) or 0
        with self._turn:
            if self._ended or not self._places.take(client):
                raise TicketRefused("too many clients wait; use collectTicket")
            self._waiting[key].append(event)
        try:
            yield event
        finally:
            with self._turn:
                self._places.release(client)
                self._waiting[key].remove(event)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _wake(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            for event in self._waiting.get(number, ()):
                event.set()


def read_number(given: int | str) -> int | None:
    """Parse a ticket id given as number or text (`resalloc` sends text); None if invalid."""
    number = str(given)
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else None  # noqa: PLR2004 - no id has more digits


def client_name(client: str) -> str:
    """Return the name of a client, without the address that is added if it has no token."""
    return client.partition(" ")[0]


def collected(ticket: Ticket | None) -> dict[str, str | bool | None]:
    """Return the result of `collectTicket`. `ticket` is None if no such ticket exists."""
    if ticket is None:
        return {"ready": None, "output": None, "closed": None, "failed": None}
    return {
        "ready": bool(ticket.machine),
        "output": output(ticket) or None,
        "closed": ticket.state is TicketState.CLOSED,
        "failed": ticket.state in (TicketState.FAILED, TicketState.EXPIRED),
    }


def output(ticket: Ticket) -> str:
    """Return the answer of a ticket with one final newline; empty without a machine."""
    return f"{ticket.answer.removesuffix(chr(10))}\n" if ticket.machine else ""
