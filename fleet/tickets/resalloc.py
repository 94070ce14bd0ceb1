"""This module says what clients of Resalloc tell of themselves, and what they are told."""

from typing import NamedTuple

from fleet.canonical import digest
from fleet.tickets import Ticket, TicketState, find_fault_of

_SHOWN = 40


class Sandbox(NamedTuple):
    """What Copr writes into the name of a sandbox: OWNER/PROJECT--SUBMITTER."""

    owner: str
    project: str
    submitter: str


def read_sandbox(sandbox: str) -> Sandbox | None:
    """Return what stands in OWNER/PROJECT--SUBMITTER, as Copr calls sandboxes."""
    project, _, submitter = sandbox.rpartition("--")
    owner, _, name = project.partition("/")
    return Sandbox(owner, name, submitter) if owner and name and submitter else None


def bounded(name: str) -> str:
    """Return a name as a ticket may have it: one that is too long is known by its digest.

    A client that were refused for it would ask for ever.
    """
    if not find_fault_of(name):
        return name
    begin = "".join(letter for letter in name[:_SHOWN] if letter.isprintable())
    return f"{begin.strip()}…{digest(name)[:32]}"


def collected(ticket: Ticket | None) -> dict[str, str | bool | None]:
    """Return what `collectTicket` answers; None stands for a ticket that nobody took."""
    if ticket is None:
        return {"ready": None, "output": None, "closed": None, "failed": None}
    return {
        "ready": bool(ticket.machine),
        "output": output(ticket) or None,
        "closed": ticket.state is TicketState.CLOSED,
        "failed": ticket.state in (TicketState.FAILED, TicketState.EXPIRED),
    }


def output(ticket: Ticket) -> str:
    """Return what is told of a ticket's machine, as a command would print it; else nothing."""
    return f"{ticket.answer.removesuffix(chr(10))}\n" if ticket.machine else ""
