"""This module asks fleet for a machine by tags, waits for it and gives it back."""

import argparse
import getpass
from dataclasses import dataclass
from datetime import timedelta

from fleet.commands.clock import SystemClock
from fleet.commands.signals import Signals
from fleet.commands.wiring import load_config
from fleet.errors import TicketRefused, WrongUsage
from fleet.ports import Clock, Console, Waiter
from fleet.prospects import find_unknown_tag, why_waits
from fleet.render.tickets import ticket_to_text, tickets_to_json
from fleet.schema.model import Fleet, TicketQueue
from fleet.schema.units import read_duration
from fleet.store.database import DatabaseStore
from fleet.store.places import find_places
from fleet.store.tickets import DatabaseTickets
from fleet.tickets import Ticket, TicketState, close, expire, find_fault, hear

_POLL_SECONDS = 3


@dataclass(frozen=True)
class _Counter:
    """What every action needs: the queue, its tickets, and who stands before it."""

    fleet: Fleet
    name: str
    queue: TicketQueue
    book: DatabaseTickets
    user: str
    clock: Clock
    console: Console

    def own(self, text: str) -> Ticket:
        """Return a ticket of this user, just heard of; TicketRefused where there is none."""
        found = self.book.find(int(text)) if text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004 - more digits no id has
        if found is None:
            raise TicketRefused(f"there is no ticket {text} in queue {self.name}")
        if found.submitter != self.user:
            raise TicketRefused(
                f"ticket {found.id} is of {found.submitter}, not of {self.user}; whoever looks "
                f"after it: --user {found.submitter}"
            )
        now = self.clock.now()
        return self.book.change(found.id, lambda each: hear(expire(each, now), now), now) or found


def run(
    args: argparse.Namespace,
    console: Console,
    waiter: Waiter | None = None,
    clock: Clock | None = None,
) -> int:
    """Do what is asked with tickets; 0 where a ticket is ready, opened or closed."""
    config = load_config(args, console)
    name = _queue_of(config.fleet, args.queue)
    declared = config.fleet.queues[name]
    if not isinstance(declared, TicketQueue):
        raise WrongUsage(f"queue {name} is of kind {declared.kind}: it has no tickets of fleet's")
    store = DatabaseStore(find_places(config.fleet, args.file).store, config.fleet.fleet)
    counter = _Counter(
        config.fleet,
        name,
        declared,
        DatabaseTickets(store.begin, name),
        getattr(args, "user", None) or getpass.getuser(),
        clock or SystemClock(),
        console,
    )
    match args.action:
        case "open":
            return _open(args, counter)
        case "check":
            return _check(args, counter)
        case "wait":
            return _wait(args, counter, waiter or Signals())
        case "close":
            return _close(args, counter)
        case _:
            return _list(args, counter)


def _queue_of(fleet: Fleet, asked: str | None) -> str:
    names = [name for name, queue in fleet.queues.items() if isinstance(queue, TicketQueue)]
    said = ", ".join(names) or "it has none of kind tickets"
    if asked is not None:
        if asked not in fleet.queues:
            raise WrongUsage(f"fleet.yaml has no queue {asked}; of kind tickets: {said}")
        return asked
    if len(names) != 1:
        raise WrongUsage(f"say with --queue which queue of fleet.yaml is meant: {said}")
    return names[0]


def _open(args: argparse.Namespace, counter: _Counter) -> int:
    tags = tuple(sorted(set(args.tag)))
    owner = args.owner or counter.user
    fault = find_fault(args.tag, [n for n in (args.sandbox, owner, args.team, counter.user) if n])
    fault = fault or find_unknown_tag(counter.fleet, counter.name, tags)
    if fault:
        raise TicketRefused(f"no ticket was opened: {fault}")
    now = counter.clock.now()
    ticket = counter.book.open(
        Ticket(
            0,
            tags,
            opened_at=now,
            heard_at=now,
            submitter=counter.user,
            owner=owner,
            team=args.team,
            sandbox=args.sandbox,
            priority=_priority(args.priority),
            background=args.background,
            lease=None if args.lease is None else _seconds("--lease", args.lease),
        ),
        most=counter.queue.most_open,
        most_of_submitter=counter.queue.most_open_per_submitter,
    )
    counter.console.out(str(ticket.id))
    _explain(ticket, counter)
    return 0


def _check(args: argparse.Namespace, counter: _Counter) -> int:
    ticket = counter.own(args.ticket)
    if ticket.state is TicketState.READY:
        counter.console.out(ticket.answer)
        return 0
    _explain(ticket, counter)
    return 1


def _wait(args: argparse.Namespace, counter: _Counter, waiter: Waiter) -> int:
    most = None if args.most is None else timedelta(seconds=_seconds("--for", args.most))
    began = counter.clock.now()
    told = False
    while True:
        ticket = counter.own(args.ticket)
        if ticket.state is not TicketState.WAITING:
            return _check(args, counter)
        if not told:
            _explain(ticket, counter)
            told = True
        if most is not None and counter.clock.now() - began >= most:
            return 1
        if not waiter.wait(_POLL_SECONDS):
            raise KeyboardInterrupt


def _close(args: argparse.Namespace, counter: _Counter) -> int:
    ticket = counter.own(args.ticket)
    if not ticket.is_open:
        counter.console.note(f"ticket {ticket.id} was {ticket.state} already")
        return 0
    now = counter.clock.now()
    counter.book.change(ticket.id, lambda each: close(each, now), now)
    return 0


def _list(args: argparse.Namespace, counter: _Counter) -> int:
    now = counter.clock.now()
    tickets = [expire(ticket, now) for ticket in counter.book.tickets()]
    waits = {
        each.id: why_waits(counter.fleet, counter.name, each, tickets)
        for each in tickets
        if each.state is TicketState.WAITING
    }
    if args.json:
        counter.console.out(tickets_to_json(tickets, waits))
        return 0
    for ticket in tickets:
        counter.console.out(ticket_to_text(ticket, waits.get(ticket.id, ticket.because)))
    return 0


def _explain(ticket: Ticket, counter: _Counter) -> None:
    """Say why a ticket is not ready."""
    if ticket.state is TicketState.WAITING:
        because = why_waits(counter.fleet, counter.name, ticket, counter.book.tickets())
        counter.console.note(f"ticket {ticket.id} waits: {because}")
    elif ticket.state is not TicketState.READY:
        why = f": {ticket.because}" if ticket.because else ""
        counter.console.note(f"ticket {ticket.id} is {ticket.state}{why}")


def _priority(number: int) -> int:
    most = 1000
    if abs(number) > most:
        raise WrongUsage(f"--priority {number}: expected a number from -{most} to {most}")
    return number


def _seconds(option: str, text: str) -> int:
    seconds = read_duration(text)
    if seconds is None:
        raise WrongUsage(
            f"{option} {text}: expected a duration like 90s or 10m (units s, m, h, d)"
        )
    return seconds
