"""This module asks a server of tickets for a machine, without a fleet.yaml."""

import argparse
from datetime import timedelta

from fleet.errors import TicketRefused, WrongUsage
from fleet.ports import Clock, Console, Waiter
from fleet.queues.ticket_server import TicketServer
from fleet.schema.units import read_duration

_POLL_SECONDS = 3
_NOT_SENT = ("owner", "build", "team", "priority", "background", "lease", "user", "queue", "built")
"""Options that Resalloc's calls have no place for."""


def run(args: argparse.Namespace, console: Console, waiter: Waiter, clock: Clock) -> int:
    """Do what is asked of the server; 0 where a ticket is ready, opened or closed."""
    more = [name for name in _NOT_SENT if getattr(args, name, None)]
    if more:
        raise WrongUsage(
            f"--{more[0]}: a server is only told tags and a sandbox; its submitter is in the "
            "sandbox, as in OWNER/PROJECT--SUBMITTER"
        )
    server = TicketServer(args.server, args.netrc)
    match args.action:
        case "open":
            sandbox = [args.sandbox] if args.sandbox else []
            console.out(str(server.call("takeTicket", sorted(set(args.tag)), *sandbox)))
            return 0
        case "close":
            if not server.call("closeTicket", args.ticket):
                console.note(f"ticket {args.ticket} was not open")
            return 0
        case "wait":
            return _wait(args, console, server, waiter, clock)
        case _:
            return _check(args.ticket, console, server.call("collectTicket", args.ticket))


def _wait(
    args: argparse.Namespace,
    console: Console,
    server: TicketServer,
    waiter: Waiter,
    clock: Clock,
) -> int:
    seconds = None if args.most is None else read_duration(args.most)
    if args.most is not None and seconds is None:
        raise WrongUsage(f"--for {args.most}: expected a duration like 90s or 10m")
    began = clock.now()
    while True:
        found = server.call("collectTicket", args.ticket)
        is_over = seconds is not None and clock.now() - began >= timedelta(seconds=seconds)
        if is_over or not _waits(found):
            return _check(args.ticket, console, found)
        if not waiter.wait(_POLL_SECONDS):
            raise KeyboardInterrupt


def _waits(found: object) -> bool:
    return (
        isinstance(found, dict)
        and not (found.get("ready") or found.get("closed") or found.get("failed"))
        and found.get("ready") is not None
    )


def _check(number: str, console: Console, found: object) -> int:
    """Print the answer of a ticket that is ready; else say what it is, and return 1."""
    if not isinstance(found, dict) or found.get("ready") is None:
        raise TicketRefused(f"there is no ticket {number} of this client at the server")
    for word in ("closed", "failed"):
        if found.get(word):
            console.note(f"ticket {number} is {word}")
            return 1
    if not found["ready"]:
        console.note(f"ticket {number} waits")
        return 1
    console.out(str(found.get("output") or "").rstrip("\n"))
    return 0
