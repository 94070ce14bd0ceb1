"""This module finds the queue of tickets that a command is about."""

from collections.abc import Mapping
from pathlib import Path

from fleet.errors import WrongUsage
from fleet.facts import Unknown
from fleet.schema.model import Fleet, TicketQueue
from fleet.store.files import LocalFiles
from fleet.store.members import FileMembers


def find_desk(fleet: Fleet, asked: str | None) -> tuple[str, TicketQueue]:
    """Return the queue of tickets that is named, or the only one; WrongUsage where none is it."""
    desks = {name: q for name, q in fleet.queues.items() if isinstance(q, TicketQueue)}
    said = ", ".join(desks) or "none"
    if asked is None:
        if not desks:
            raise WrongUsage("fleet.yaml has no queue of kind tickets: declare one under queues")
        if len(desks) != 1:
            raise WrongUsage(f"say with --queue which queue of fleet.yaml is meant: {said}")
        (asked,) = desks
    if asked in desks:
        return asked, desks[asked]
    if asked not in fleet.queues:
        raise WrongUsage(f"fleet.yaml has no queue {asked}; of kind tickets: {said}")
    raise WrongUsage(
        f"queue {asked} is of kind {fleet.queues[asked].kind}: it has no tickets of fleet's"
    )


def read_members(fleet: Fleet, file: str) -> Mapping[str, tuple[str, ...]] | Unknown:
    """Return who is in which group, from the file that `members` names beside fleet.yaml."""
    if fleet.members is None:
        return {}
    return FileMembers(str(Path(file).resolve().parent / fleet.members.file), LocalFiles()).read()
