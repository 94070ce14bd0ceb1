"""Read a recorded world, and a queue out of one."""

import re
from datetime import datetime
from typing import Generic, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails, from_json

from fleet.errors import FileUnreadable, SourceUnreachable
from fleet.model.facts import Attempt, Demand, QueueReading, Request, Unknown, World
from fleet.model.values import Value
from fleet.schema import model
from fleet.schema.source import Files

Each = TypeVar("Each", bound=Value)
_LIMIT_BYTES = 200 * 1000 * 1000
_FORMAT = "fleet-world-1"
_SHOWN = 3
_AT = re.compile(r" at line (?P<line>\d+) column (?P<column>\d+)$")


class WorldQueue:
    """A queue as it was recorded, read as if it were so now."""

    def __init__(self, queue: model.WorldQueue, files: Files) -> None:
        self._queue = queue
        self._files = files

    def read(self, now: datetime) -> QueueReading:
        """Return the recorded demand and workers; the demand's time is now."""
        try:
            reading = self._pick(read_world(self._queue.path, self._files))
        except (FileUnreadable, SourceUnreachable) as error:
            unknown = Unknown(unknown=str(error))
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
    """Return the world recorded in a file; raises FileUnreadable naming the place."""
    return world_of(name, files.read(name, _LIMIT_BYTES))


def world_of(name: str, content: bytes) -> World:
    """Return a recorded world; raises FileUnreadable naming the place in the file of this name."""
    try:
        return World.model_validate_json(content)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        if errors[0]["type"] == "json_invalid":
            raise FileUnreadable(_not_json(name, errors[0]["msg"])) from error
        raise FileUnreadable(_not_a_world(name, content, errors)) from error


class _Lists(Generic[Each]):
    """Takes lists of one kind out of JSON; what is written as it was before is the same object.

    Within a string a quote is escaped, so `},{"id":` divides two objects of a list wherever it
    stands in JSON. Divided there, an inner list leaves a part that is no object: a ValueError.
    """

    def __init__(self, kind: type[Each], key: bytes, begin: bytes, end: bytes) -> None:
        """Take the lists of a key: how each object in them begins, and what follows a list."""
        self._kind, self._begin, self._end = kind, begin, b"}" + end
        self._key, self._between = key + begin, b"}," + begin
        self._before: dict[bytes, Each] = {}

    def cut(self, content: bytes) -> tuple[bytes, list[tuple[Each, ...]]]:
        """Return JSON with the first object alone in each list, and the whole lists."""
        kept, *others = content.split(self._key)
        parts, known, lists = [kept], dict[bytes, Each](), []
        for other in others:
            objects, end, after = other.partition(self._end)
            texts = objects.split(self._between)
            for text in texts:
                known[text] = self._before.get(text) or self._read(text)
            lists.append(tuple(known[text] for text in texts))
            parts += self._key, texts[0], end, after
        self._before = known
        return b"".join(parts), lists

    def _read(self, text: bytes) -> Each:
        return self._kind.model_validate_json(self._begin + text + b"}")


class Moments:
    """Reads one moment of a history after the other.

    Most of a long queue waited at the moment before too, and most attempts are those of then:
    they are not even parsed again, and are the same objects.
    """

    def __init__(self) -> None:
        self._requests = _Lists(Request, b'"requests":[', b'{"id":', b'],"stored":')
        self._attempts = _Lists(Attempt, b'"attempts":[', b'{"pool":', b'],"approved":')

    def world_of(self, name: str, content: bytes) -> World:
        """Return what `world_of` returns, and raise what it raises."""
        try:
            return self._read(content)
        except ValueError:
            return world_of(name, content)  # says where

    def _read(self, content: bytes) -> World:
        content, requests = self._requests.cut(content)
        content, attempts = self._attempts.cut(content)
        world = World.model_validate_json(content)
        waiting = {
            name: reading.demand
            for name, reading in world.queues.items()
            if isinstance(reading.demand, Demand) and reading.demand.requests
        }
        begun = [*(demand.requests for demand in waiting.values()), world.attempts]
        if begun != [whole[:1] for whole in (*requests, *(attempts or [()]))]:
            raise ValueError(begun)  # another list was cut, or one is written another way
        queues = dict(world.queues)
        for (name, demand), whole in zip(waiting.items(), requests, strict=True):
            queues[name] = queues[name].altered(demand=demand.altered(requests=whole))
        return world.altered(queues=queues, attempts=(*attempts, ())[0])


def _not_json(name: str, message: str) -> str:
    message = message.removeprefix("Invalid JSON: ")
    place = _AT.search(message)
    where = f":{place['line']}:{place['column']}" if place else ""
    return f"{name}{where}: not JSON: {_AT.sub('', message)}"


def _not_a_world(name: str, content: bytes, errors: list[ErrorDetails]) -> str:
    recorded = from_json(content)
    if not isinstance(recorded, dict):
        return f"{name}: $ is not an object; a recording is made with `fleet observe --out FILE`"
    if recorded.get("format", _FORMAT) != _FORMAT:
        return (
            f"{name}: $.format is not {_FORMAT}: this is no recording, or one of another version "
            "of fleet; make one with `fleet observe --out FILE`"
        )
    pointed = [place for error in errors if (place := _pointed(error, recorded))]
    lines = list(dict.fromkeys(pointed)) or [str(errors[0]["msg"])]
    more = f" (and {len(lines) - _SHOWN} more)" if len(lines) > _SHOWN else ""
    return f"{name}: not a world of format {_FORMAT}: {'; '.join(lines[:_SHOWN])}{more}"


def _pointed(error: ErrorDetails, recorded: object) -> str | None:
    """Return a fault with its path; None for a shape that was tried beside the meant one.

    The parts of a fault's place that the recording does not hold are names of shapes.
    """
    path, node, parts = "$", recorded, error["loc"]
    for index, part in enumerate(parts):
        if isinstance(node, dict) and part in node:
            path, node = f"{path}.{part}", node[part]
        elif isinstance(node, list) and isinstance(part, int):
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
