"""Render tickets as lines in Resalloc's format with additional fields, as text, or as JSON."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fleet.model.tickets import Ticket, TicketState
from fleet.schema.findings import listed


def ticket_to_text(ticket: Ticket, because: str) -> str:
    """Return a ticket as one line. `because` is the reason to wait, or empty."""
    parts = [
        f"{ticket.id} - state={'OPEN' if ticket.is_open else ticket.state.upper()}",
        f"tags={listed(ticket.tags, between=',')}",
    ]
    parts += [f"resource={ticket.machine}"] if ticket.machine else []
    parts += [f"owner={ticket.owner}"] if ticket.owner else []
    parts += [f"sandbox={ticket.sandbox}"] if ticket.sandbox else []
    parts.append(f"since={ticket.opened_at:%Y-%m-%dT%H:%M:%SZ}")
    parts += [f"because={because}"] if because else []
    return " ".join(parts)


def ticket_shown(ticket: Ticket, waits: str, rules: Sequence[str]) -> str:
    """Return the known fields of a ticket, and the rules that apply, one per line."""
    why = waits or ticket.because
    state = f"{ticket.state}: {why}" if why else ticket.state.value
    facts = {
        "state": state,
        "machine": ticket.machine,
        "answer": ticket.answer,
        "tags": listed(ticket.tags),
        "given for": listed(ticket.granted or ()),
        "build": ticket.build,
        "owner": ticket.owner,
        "team": ticket.team,
        "submitter": ticket.submitter,
        "sandbox": ticket.sandbox,
        "opened": f"{ticket.opened_at:%Y-%m-%dT%H:%M:%SZ}",
    }
    lines = [f"ticket {ticket.id}"]
    lines += [f"  {name:9}  {fact}" for name, fact in facts.items() if fact]
    lines += [f"  {'rules':9}  {rule}" for rule in rules]
    if ticket.state is TicketState.READY and ticket.note:
        lines.append(f"  {'dropped':9}  {ticket.note}")
    return "\n".join(lines)


def ticket_shown_to_json(ticket: Ticket, waits: str, rules: Sequence[str]) -> str:
    """Return all fields of a ticket, and the rules that apply, as JSON."""
    return json.dumps(_encode_ticket(ticket, waits) | {"rules": [*rules]}, indent=1)


def tickets_to_json(tickets: Iterable[Ticket], waits: Mapping[int, str]) -> str:
    """Return all fields of tickets as JSON. `waits` maps ticket ids to reasons to wait."""
    return json.dumps([_encode_ticket(each, waits.get(each.id, "")) for each in tickets], indent=1)


def _encode_ticket(ticket: Ticket, waits: str) -> dict[str, Any]:
    values = ticket._asdict()
    times = ("opened_at", "heard_at", "ready_at", "ended_at")
    values |= {key: values[key].isoformat() for key in times if values[key]}
    return values | {"because": ticket.because or waits}
