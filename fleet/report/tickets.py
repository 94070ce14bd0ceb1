"""This module writes tickets down: a line as Resalloc's own, with more behind it, or JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fleet.model.tickets import Ticket, TicketState


def ticket_to_text(ticket: Ticket, because: str) -> str:
    """Return a ticket in a line."""
    parts = [
        f"{ticket.id} - state={'OPEN' if ticket.is_open else ticket.state.upper()}",
        f"tags={','.join(ticket.tags)}",
    ]
    parts += [f"resource={ticket.machine}"] if ticket.machine else []
    parts += [f"owner={ticket.owner}"] if ticket.owner else []
    parts += [f"sandbox={ticket.sandbox}"] if ticket.sandbox else []
    parts.append(f"since={ticket.opened_at:%Y-%m-%dT%H:%M:%SZ}")
    parts += [f"because={because}"] if because else []
    return " ".join(parts)


def ticket_shown(ticket: Ticket, waits: str, rules: Sequence[str]) -> str:
    """Return all that is known of a ticket: a line for each, and what the rules make of it."""
    why = waits or ticket.because
    state = f"{ticket.state}: {why}" if why else ticket.state.value
    facts = {
        "state": state,
        "machine": ticket.machine,
        "answer": ticket.answer,
        "tags": ", ".join(ticket.tags),
        "given for": ", ".join(ticket.granted or ()),
        "build": ticket.build,
        "owner": ticket.owner,
        "team": ticket.team,
        "submitter": ticket.submitter,
        "sandbox": ticket.sandbox,
        "opened": f"{ticket.opened_at:%Y-%m-%dT%H:%M:%SZ}",
    }
    lines = [f"ticket {ticket.id}"]
    lines += [f"  {name:9}  {fact}" for name, fact in facts.items() if fact]
    lines += [f"  {'rules':9}  {said}" for said in rules]
    if ticket.state is TicketState.READY and ticket.note:
        lines.append(f"  {'dropped':9}  {ticket.note}")
    return "\n".join(lines)


def ticket_shown_to_json(ticket: Ticket, waits: str, rules: Sequence[str]) -> str:
    """Return a ticket with all that is known of it, and what the rules make of its tags."""
    return json.dumps(_to_json(ticket, waits) | {"rules": [*rules]}, indent=1)


def tickets_to_json(tickets: Iterable[Ticket], waits: Mapping[int, str]) -> str:
    """Return tickets with all that is known of them."""
    return json.dumps([_to_json(each, waits.get(each.id, "")) for each in tickets], indent=1)


def _to_json(ticket: Ticket, waits: str) -> dict[str, Any]:
    said = asdict(ticket)
    times = ("opened_at", "heard_at", "ready_at", "ended_at")
    said |= {key: said[key].isoformat() for key in times if said[key]}
    return said | {"because": ticket.because or waits}
