"""This module writes tickets down: a line as Resalloc's own, with more behind it, or JSON."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from fleet.tickets import Ticket


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


def tickets_to_json(tickets: Iterable[Ticket], waits: Mapping[int, str]) -> str:
    """Return tickets with all that is known of them."""
    return json.dumps([_to_json(each, waits.get(each.id, "")) for each in tickets], indent=1)


def _to_json(ticket: Ticket, waits: str) -> dict[str, Any]:
    said = asdict(ticket)
    times = ("opened_at", "heard_at", "ended_at")
    said |= {key: said[key].isoformat() for key in times if said[key]}
    return said | {"because": ticket.because or waits}
