"""This module renders what became of publishing a version, and how far an upload is."""

from fleet.facts.versions import Publishing, Transfer
from fleet.render.words import many

_MB = 1_000_000


def publishing_to_text(publishing: Publishing) -> str:
    """Return a line for each place, and one for each thing that was removed there."""
    what = f"{publishing.image} {publishing.version}".rstrip()
    lines = []
    for each in publishing.places:
        lines += [f"{each.place}: removed {removed}" for removed in each.removed]
        if each.error:
            lines.append(f"{each.place}: failed: {each.error}")
        elif each.id:
            lines.append(f"{each.place}: {what} is published as {each.id}")
        elif not each.removed:
            lines.append(f"{each.place}: nothing was left there")
    return "\n".join(lines) + "\n"


def phase_to_text(place: str, transfer: Transfer) -> str:
    """Return that a phase of an upload began."""
    return f"{place}: {transfer.phase}: {many(transfer.total, 'byte')}"


def transfer_to_text(place: str, transfer: Transfer) -> str:
    """Return how far an upload is."""
    done, total = f"{transfer.done / _MB:,.1f}", f"{transfer.total / _MB:,.1f}"
    return f"{place}: {transfer.phase}: {done} of {total} MB"
