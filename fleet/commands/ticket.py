"""This module asks fleet for a machine by tags, waits for it and gives it back."""

import argparse
import getpass
from dataclasses import dataclass
from datetime import timedelta

from fleet.commands.clock import SystemClock
from fleet.commands.config import load_config
from fleet.commands.desks import find_desk
from fleet.commands.signals import Signals
from fleet.errors import TicketRefused, WrongUsage
from fleet.handout.prospects import provided_in, why_all_wait, why_refused, why_waits
from fleet.ports import Clock, Console, Waiter
from fleet.render.tickets import ticket_to_text, tickets_to_json
from fleet.schema.model import Fleet, TicketQueue
from fleet.schema.units import read_duration
from fleet.store.database import DatabaseStore
from fleet.store.places import find_places
from fleet.store.tickets import DatabaseTickets
from fleet.tickets import Ticket, TicketState, close, expire, hear

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
    name, declared = find_desk(config.fleet, args.queue)
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


def _open(args: argparse.Namespace, counter: _Counter) -> int:
    now = counter.clock.now()
    asked = Ticket(
        0,
        tuple(sorted(set(args.tag))),
        opened_at=now,
        heard_at=now,
        submitter=counter.user,
        owner=args.owner or counter.user,
        team=args.team,
        sandbox=args.sandbox,
        priority=_priority(args.priority),
        background=args.background,
        lease=None if args.lease is None else _seconds("--lease", args.lease),
    )
    provided = provided_in(counter.fleet, counter.name)
    fault = why_refused(counter.fleet, counter.name, asked, provided)
    if fault:
        raise TicketRefused(f"no ticket was opened: {fault}")
    ticket = counter.book.open(
        asked,
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
    waits = why_all_wait(counter.fleet, counter.name, tickets, now)
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
