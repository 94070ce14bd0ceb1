"""Open tickets for machines by tags, wait for tickets and close them: `fleet ticket`."""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from fleet.apply.config import Config, load_config, read_seconds
from fleet.apply.timer import Signals
from fleet.apply.wire import read_members
from fleet.cli.arguments import JSON, action, actions, argument, flag, option
from fleet.clock import SystemClock
from fleet.errors import TicketRefused, WrongUsage
from fleet.model.tickets import Ticket, TicketState, close, expire, hear
from fleet.ports import Clock, Console, Waiter
from fleet.schema.findings import Path, yaml_key
from fleet.schema.model import Fleet, TicketQueue
from fleet.state.database import name_user
from fleet.state.store import store_of
from fleet.tagrules.names import PARTS
from fleet.tagrules.requests import Memberships
from fleet.tickets.client import run as ask_server
from fleet.tickets.desk import find_desk
from fleet.tickets.reasons import Judged, judge, why_all_wait, why_refused, why_waits
from fleet.tickets.report import (
    ticket_shown,
    ticket_shown_to_json,
    ticket_to_text,
    tickets_to_json,
)
from fleet.tickets.store import DatabaseTickets

_QUEUE = option("--queue", "NAME", "queue of kind tickets; required if fleet.yaml has several")
_USER = option("--user", "NAME", "requester (default: the current user)")
_SERVER = (
    option(
        "--server",
        "URL",
        "use the `fleet serve` at this address, for example https://HOST:49100, instead of "
        "fleet.yaml; sends only tags and sandbox",
    ),
    option(
        "--netrc",
        "FILE",
        "with --server: file with the token, as `machine HOST login NAME password TOKEN`, "
        "mode 0600 (default: ~/.netrc)",
    ),
)
_OWN_TICKET = (
    argument("ticket", metavar="ID", help="id of the ticket, as `fleet ticket open` printed it"),
    _USER,
    _QUEUE,
)
ARGUMENTS = (
    actions(
        action(
            "open",
            "open a ticket and print its id",
            None,
            argument(
                "--tag",
                action="append",
                default=[],
                required=True,
                metavar="TAG",
                help="tag that the machine must provide; may be repeated",
            ),
            option(
                "--sandbox",
                "NAME",
                "permit reuse of the machine by later tickets of this sandbox only",
                default="",
            ),
            option("--owner", "NAME", "owner, for fair shares and limits (default: --user)"),
            option(
                "--build",
                "NAME",
                "build, OWNER/PROJECT/CHROOT/PACKAGE, for the rules of `powerful` and `derive`",
            ),
            option("--team", "NAME", "team whose budget pays", default=""),
            option("--priority", "N", "higher is served first (default: 0)", default=0, kind=int),
            flag("--background", "lower --priority by one"),
            option(
                "--lease",
                "DURATION",
                "expire the ticket if no client checks it for this time",
            ),
            _USER,
            _QUEUE,
            *_SERVER,
        ),
        action(
            "check",
            "print the machine of a ready ticket; exit 1 if it is not ready",
            None,
            *_OWN_TICKET,
            *_SERVER,
        ),
        action(
            "wait",
            "wait until a ticket is ready, and print its machine",
            None,
            *_OWN_TICKET,
            *_SERVER,
            argument(
                "--for",
                dest="most",
                metavar="DURATION",
                help="maximum time to wait, for example 30m (default: no limit)",
            ),
        ),
        action(
            "show",
            "show a ticket: state, tags, rules, reason to wait",
            None,
            *_OWN_TICKET,
            JSON,
        ),
        action(
            "close",
            "close a ticket and release its machine",
            None,
            *_OWN_TICKET,
            *_SERVER,
            flag(
                "--built",
                "the build of `open --build` succeeded: use its duration to estimate later "
                "builds of the package",
            ),
        ),
        action("list", "list the open tickets", None, _QUEUE, JSON),
    ),
)


_POLL_SECONDS = 3


@dataclass(frozen=True)
class _Counter:
    """The context of an action: the queue, its tickets, and the user."""

    config: Config
    members: Memberships
    name: str
    queue: TicketQueue
    book: DatabaseTickets
    user: str
    clock: Clock
    waiter: Waiter
    console: Console

    @property
    def fleet(self) -> Fleet:
        """Return the fleet of the configuration."""
        return self.config.fleet

    def judge(self, ticket: Ticket) -> Judged:
        """Apply today's rules to a ticket's tags, and return the decisions."""
        return judge(self.fleet, ticket, self.members, self.clock.now().date())

    def place(self, path: Path) -> str:
        """Return a key of fleet.yaml with the key's position in the file, as text."""
        return f"{yaml_key(path)}, {self.config.document.place(path)}"

    def find(self, text: str) -> Ticket:
        """Return a ticket of any user; raises TicketRefused if there is no such ticket."""
        found = self.book.find(int(text)) if text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004 - no id has more digits
        if found is None:
            raise TicketRefused(f"queue {self.name} has no ticket {text}")
        return expire(found, self.clock.now())

    def own(self, text: str) -> Ticket:
        """Record a call for this user's ticket and return it; raises TicketRefused for others."""
        found = self.find(text)
        if found.submitter != self.user:
            raise TicketRefused(
                f"ticket {found.id} belongs to {found.submitter}, not {self.user}; to act for "
                f"{found.submitter}: --user {found.submitter}"
            )
        now = self.clock.now()
        return self.book.change(found.id, lambda each: hear(expire(each, now), now), now) or found


def run(
    args: argparse.Namespace,
    console: Console,
    waiter: Waiter | None = None,
    clock: Clock | None = None,
) -> int:
    """Run an action on tickets; return 0 on success, and 1 if the ticket is not ready."""
    if getattr(args, "server", None):
        return ask_server(args, console, waiter or Signals(), clock or SystemClock())
    if getattr(args, "netrc", None):
        raise WrongUsage("--netrc needs --server")
    config = load_config(args, console)
    name, declared = find_desk(config.fleet, args.queue)
    store = store_of(config.fleet, args.file)
    counter = _Counter(
        config,
        read_members(config.fleet, args.file),
        name,
        declared,
        DatabaseTickets(store.begin, name),
        getattr(args, "user", None) or name_user(),
        clock or SystemClock(),
        waiter or Signals(),
        console,
    )
    actions = {
        "open": _open,
        "check": _check,
        "wait": _wait,
        "close": _close,
        "show": _show,
        "list": _list,
    }
    return actions[args.action](args, counter)


def _open(args: argparse.Namespace, counter: _Counter) -> int:
    now = counter.clock.now()
    owner, project, chroot, package = _build(args.build)
    if owner and args.owner not in (None, owner):
        raise WrongUsage(f"--owner {args.owner}: build {args.build} belongs to {owner}")
    asked = Ticket(
        0,
        tuple(sorted(set(args.tag))),
        opened_at=now,
        heard_at=now,
        submitter=counter.user,
        owner=args.owner or owner or counter.user,
        team=args.team,
        sandbox=args.sandbox,
        priority=_priority(args.priority),
        background=args.background,
        lease=None if args.lease is None else read_seconds("--lease", args.lease),
        project=project,
        chroot=chroot,
        package=package,
    )
    fault = why_refused(counter.fleet, counter.name, asked)
    if fault:
        raise TicketRefused(f"no ticket was opened: {fault}")
    judged = counter.judge(asked)
    if judged.denied:
        because = "; ".join(
            f"{each.because} ({counter.place(each.path)})" for each in judged.denied
        )
        raise TicketRefused(f"no ticket was opened: {because}")
    ticket = counter.book.open(
        asked,
        most=counter.queue.most_open,
        most_of_submitter=counter.queue.most_open_per_submitter,
    )
    counter.console.out(str(ticket.id))
    for effect in _describe_rules(counter.judge(ticket), counter):
        counter.console.note(f"ticket {ticket.id} {effect}")
    _explain(ticket, counter)
    return 0


def _describe_rules(judged: Judged, counter: _Counter) -> Iterator[str]:
    """Yield the effects of rules on a ticket's tags, each with the rule's line in fleet.yaml."""
    for each in judged.given:
        yield f"asks for {each.tag} by {counter.place(each.path)} ({each.because})"
    for each in (*judged.dropped, *judged.denied):
        may = "runs without" if each in judged.dropped else "gets no machine without"
        yield f"{may} {each.tag}: {each.because} ({counter.place(each.path)})"


def _show(args: argparse.Namespace, counter: _Counter) -> int:
    ticket = counter.find(args.ticket)
    waits = ""
    if ticket.state is TicketState.WAITING:
        waits = why_waits(counter.fleet, counter.name, ticket, counter.book.tickets())
    rules = [*_describe_rules(counter.judge(ticket), counter)] if ticket.is_open else []
    counter.console.out(
        ticket_shown_to_json(ticket, waits, rules)
        if args.json
        else ticket_shown(ticket, waits, rules)
    )
    return 0


def _check(args: argparse.Namespace, counter: _Counter) -> int:
    ticket = counter.own(args.ticket)
    if ticket.state is TicketState.READY:
        counter.console.out(ticket.answer)
        if ticket.note:
            counter.console.note(f"ticket {ticket.id} runs {ticket.note}")
        return 0
    _explain(ticket, counter)
    return 1


def _wait(args: argparse.Namespace, counter: _Counter) -> int:
    most = None if args.most is None else timedelta(seconds=read_seconds("--for", args.most))
    began = counter.clock.now()
    is_explained = False
    while True:
        ticket = counter.own(args.ticket)
        if ticket.state is not TicketState.WAITING:
            return _check(args, counter)
        if not is_explained:
            _explain(ticket, counter)
            is_explained = True
        if most is not None and counter.clock.now() - began >= most:
            return 1
        if not counter.waiter.wait(_POLL_SECONDS):
            raise KeyboardInterrupt


def _close(args: argparse.Namespace, counter: _Counter) -> int:
    ticket = counter.own(args.ticket)
    if not ticket.is_open:
        counter.console.note(f"ticket {ticket.id} is already {ticket.state}")
        return 0
    now = counter.clock.now()
    counter.book.change(ticket.id, lambda each: close(each, now, built=args.built), now)
    return 0


def _list(args: argparse.Namespace, counter: _Counter) -> int:
    now = counter.clock.now()
    tickets = [expire(ticket, now) for ticket in counter.book.tickets()]
    waits = why_all_wait(counter.fleet, counter.name, tickets, now)
    if args.json:
        counter.console.out(tickets_to_json(tickets, waits))
        return 0
    for ticket in tickets:
        because = waits.get(ticket.id, ticket.because or ticket.note)
        counter.console.out(ticket_to_text(ticket, because))
    return 0


def _explain(ticket: Ticket, counter: _Counter) -> None:
    """Print the reason why a ticket is not ready."""
    if ticket.state is TicketState.WAITING:
        because = why_waits(counter.fleet, counter.name, ticket, counter.book.tickets())
        counter.console.note(f"ticket {ticket.id} waits: {because}")
    elif ticket.state is not TicketState.READY:
        why = f": {ticket.because}" if ticket.because else ""
        counter.console.note(f"ticket {ticket.id} is {ticket.state}{why}")


def _build(name: str | None) -> tuple[str, str, str, str]:
    """Split a build name into owner, project, chroot and package; four empty texts for None."""
    if name is None:
        return ("", "", "", "")
    owner, project, chroot, package, *more = [*name.split("/"), "", "", ""]
    if any(more) or name.count("/") != PARTS - 1 or not all((owner, project, chroot)):
        raise WrongUsage(
            f"--build {name}: expected OWNER/PROJECT/CHROOT/PACKAGE, as `powerful` matches it"
        )
    return (owner, project, chroot, package)


def _priority(number: int) -> int:
    most = 1000
    if abs(number) > most:
        raise WrongUsage(f"--priority {number}: expected a number from -{most} to {most}")
    return number
