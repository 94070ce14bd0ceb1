"""This module reads what the command `list` of a person's own prints: all of it, or an error."""

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, TypeAdapter, ValidationError

from fleet.facts import Machine, MachineState
from fleet.facts.values import Moment, Value

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
MOST_LISTED = 16 * 1024 * 1024
"""Bytes that a list may have; a longer one is an error, and never a shorter one."""

_Name = Annotated[str, StringConstraints(pattern=rf"^{NAME.pattern}$")]
_Word = Annotated[str, StringConstraints(pattern=r"^[!-~]{1,200}$")]
_Label = Annotated[str, StringConstraints(max_length=1000)]


class Listed(Value):
    """One machine, as the command `list` prints it."""

    name: _Name
    id: _Word | None = Field(None, description="Left out: its name.")
    type: _Word
    created_at: Moment
    state: Literal["starting", "running", "stopping", "stopped", "failed"] = "running"
    labels: dict[str, _Label] = Field(description="What `new` was given in FLEET_LABELS.")
    image: _Word | None = None
    address: _Word | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="For who is given it by a ticket; left out: 22."
    )
    data: Annotated[str, StringConstraints(max_length=4096)] = Field(
        "", description="What else who is given it by a ticket is to know."
    )


_LISTED = TypeAdapter(Annotated[list[Listed], Field(max_length=100_000)])


def parse(said: str) -> list[Listed]:
    """Return what `list` printed; nothing at all is no list of no machines, which is `[]`."""
    if not said.strip():
        raise ValueError("list printed nothing; a list of no machines is []")
    try:
        return _LISTED.validate_json(said)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"list did not print machines as docs/how-to/use-your-own-commands.md says: "
            f"{f'{place}: ' if place else ''}{first['msg']}"
        ) from error


def machine_of(listed: Listed) -> Machine:
    """Return a machine as it was listed."""
    return Machine(
        name=listed.name,
        id=listed.id or listed.name,
        pool=listed.labels.get("pool", ""),
        type=listed.type,
        state=MachineState(listed.state),
        created_at=listed.created_at,
        image=listed.image,
        digest=listed.labels.get("digest"),
        address=listed.address,
    )
