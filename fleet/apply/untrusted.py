"""Refuse programs, reads and connections in the fleet.yaml of a merge request.

The author of a merge request is not trusted. Only the location of the state is permitted if the
target branch has the same, since a connection alone already sends and returns facts.
"""

from collections.abc import Iterator
from pathlib import Path

from fleet.errors import refusal
from fleet.schema.model import Fleet, commands_in, connections_in, secrets_in
from fleet.schema.units import FileSecret


def refuse_untrusted(fleet: Fleet, base: Fleet | None, folder: Path) -> None:
    """Raise PlanRefused for keys that are forbidden in the fleet.yaml of a merge request.

    `base` is the configuration of the target branch; None if it is missing.
    """
    found = list(dict.fromkeys(_findings(fleet, base, folder)))
    if found:
        raise refusal(
            "this is a merge request, and its fleet.yaml is not approved yet; use `--world FILE`\n"
            + "\n".join(found)
        )


def _findings(fleet: Fleet, base: Fleet | None, folder: Path) -> Iterator[str]:
    for path in commands_in(fleet):
        yield f"{path} would run a program"
    for path in connections_in(fleet):
        yield f"{path} would be connected to"
    for path, secret in secrets_in(fleet):
        yield f"{path} would be read"
        if isinstance(secret, FileSecret):
            file = (folder / secret.file).resolve()
            if not file.is_relative_to(folder.resolve()):
                yield f"{path} would read {secret.file}, which is outside this folder"
    if fleet.state != (base.state if base else type(fleet.state)()):
        yield "state would be read elsewhere than the target branch's"
