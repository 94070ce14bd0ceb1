"""Read a recorded observation of a fleet, one queue of a recording, and the members of groups."""

import re
from collections.abc import Mapping
from datetime import datetime

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.model.facts import QueueReading, Unknown, World
from fleet.schema import model
from fleet.schema.nodes import parse
from fleet.schema.source import Files

_LIMIT_BYTES = 200 * 1000 * 1000
_FORMAT = "fleet-world-1"
_SHOWN = 3
_AT = re.compile(r" at line (?P<line>\d+) column (?P<column>\d+)$")


class RecordedQueue:
    """A recorded queue, read as if the recording were current."""

    def __init__(self, queue: model.WorldQueue, files: Files) -> None:
        self._queue = queue
        self._files = files

    def read(self, now: datetime) -> QueueReading:
        """Return the recorded demand and workers, as if they were read at `now`."""
        try:
            reading = self._pick(read_world(self._queue.path, self._files))
        except (FileUnreadable, SourceUnreachable) as error:
            unknown = Unknown.of(error)
            return QueueReading(demand=unknown, workers=unknown)
        if isinstance(reading.demand, Unknown):
            return reading
        demand = reading.demand.altered(read_at=now)
        return reading.altered(demand=demand)

    def _pick(self, world: World) -> QueueReading:
        name = self._queue.queue
        names = ", ".join(sorted(world.queues)) or "none"
        if name is None and len(world.queues) == 1:
            return next(iter(world.queues.values()))
        if name is None:
            raise SourceUnreachable(
                f"{self._queue.path} has several queues, or none ({names}); "
                "choose one with `queue`"
            )
        if name not in world.queues:
            raise SourceUnreachable(f"{self._queue.path} has no queue {name}; it has: {names}")
        return world.queues[name]


def read_world(name: str, files: Files) -> World:
    """Parse a recorded observation in a file; raises FileUnreadable with the error's position."""
    return world_of(name, files.read(name, _LIMIT_BYTES))


def world_of(name: str, content: bytes) -> World:
    """Parse a recorded observation; raises FileUnreadable with the position in this file."""
    try:
        return World.model_validate_json(content)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        if errors[0]["type"] == "json_invalid":
            message = errors[0]["msg"].removeprefix("Invalid JSON: ")
            place = _AT.search(message)
            where = f":{place['line']}:{place['column']}" if place else ""
            raise FileUnreadable(f"{name}{where}: not JSON: {_AT.sub('', message)}") from error
        raise FileUnreadable(_not_a_world(name, content, errors)) from error


def _not_a_world(name: str, content: bytes, errors: list[ErrorDetails]) -> str:
    recorded = from_json(content)
    if not isinstance(recorded, dict):
        return f"{name}: $ is not an object; a recording is made with `fleet observe --out FILE`"
    if recorded.get("format", _FORMAT) != _FORMAT:
        return (
            f"{name}: $.format is not {_FORMAT}: this is no recording, or one of another version "
            "of fleet; make one with `fleet observe --out FILE`"
        )
    pointed = [place for error in errors if (place := _describe_error(error, recorded))]
    lines = list(dict.fromkeys(pointed)) or [str(errors[0]["msg"])]
    more = f" (and {len(lines) - _SHOWN} more)" if len(lines) > _SHOWN else ""
    return f"{name}: not a world of format {_FORMAT}: {'; '.join(lines[:_SHOWN])}{more}"


def _describe_error(error: ErrorDetails, recorded: object) -> str | None:
    """Describe a validation error with its path; None if it is about another type of a union.

    Parts of an error's location that are not in the recording are names of types.
    """
    path, node, parts = "$", recorded, error["loc"]
    for index, part in enumerate(parts):
        if isinstance(node, dict) and part in node:
            path, node = f"{path}.{part}", node[part]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            path, node = f"{path}[{part}]", node[part]
        elif error["type"] == "missing" and index == len(parts) - 1:
            path = f"{path}.{part}"
        elif (part == "Unknown") != (isinstance(node, dict) and "unknown" in node):
            return None
    match error["type"]:
        case "missing":
            return f"{path} is missing"
        case "extra_forbidden":
            return f"{path} is not a known key"
        case _:
            message = error["msg"]
            return f"{path}: {message[:1].lower()}{message[1:]}"


_LIMIT_OF_MEMBERS = 10 * 1000 * 1000


class FileMembers:
    """A YAML or JSON file that maps each group to a list of users."""

    def __init__(self, name: str, files: Files) -> None:
        self._name = name
        self._files = files

    def read(self) -> Mapping[str, tuple[str, ...]] | Unknown:
        """Map each group to its users; Unknown with a reason if the file is unreadable."""
        try:
            text = self._files.read(self._name, _LIMIT_OF_MEMBERS).decode("utf-8-sig")
        except FileUnreadable as error:
            return Unknown.of(error)
        except UnicodeDecodeError as error:
            return Unknown(unknown=f"{self._name}: not UTF-8 text: {error.reason}")
        parsed = parse(text, self._name)
        if parsed.findings:
            first = parsed.findings[0]
            return Unknown(unknown=f"{first.span}: {first.message}")
        value = parsed.root.plain() if parsed.root else None
        if not isinstance(value, dict):
            return Unknown(unknown=f"{self._name}: expected a mapping of groups to lists of users")
        for group, users in value.items():
            if not isinstance(group, str) or not (
                isinstance(users, list) and all(isinstance(name, str) and name for name in users)
            ):
                wrong = f"{self._name}: group {group!r} needs a list of user names"
                return Unknown(unknown=wrong)
        return {group: tuple(users) for group, users in value.items()}
