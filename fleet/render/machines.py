"""This module renders machines alone, as `fleet machine list` shows them."""

from typing import Literal

from fleet.facts.values import Moment, Value
from fleet.render import words
from fleet.render.status import Status, WorkerStatus
from fleet.render.status_text import worker_table
from fleet.render.terminal import Span, Style, line, lines_to_text
from fleet.render.to_json import value_to_json


class Machines(Value):
    """Machines, as `fleet machine list --json` prints them."""

    format: Literal["fleet-machines-1"] = "fleet-machines-1"
    fleet: str
    time: Moment
    machines: tuple[WorkerStatus, ...]
    unlisted: tuple[str, ...]
    """Pools whose machines are not known."""


def machines_to_json(status: Status) -> str:
    """Return the machines of a status as JSON."""
    return value_to_json(
        Machines(
            fleet=status.fleet,
            time=status.time,
            machines=status.workers,
            unlisted=status.unlisted,
        )
    )


def machines_to_text(status: Status, *, colour: bool) -> str:
    """Return the machines of a status as a table."""
    lines = list(worker_table(status)) if status.workers else [line("No such machines.")]
    if status.unlisted:
        which = words.named("pool", status.unlisted)
        lines.append(line(Span(f"The machines of {which} are not known.", Style.YELLOW)))
    return lines_to_text(lines, colour=colour)
