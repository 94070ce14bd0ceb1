"""Find the positions in fleet.yaml of keys that an explanation cites."""

from typing import TypeVar, cast

from fleet.apply.config import Config
from fleet.model.values import Value
from fleet.schema.findings import At, Path

_Cites = TypeVar("_Cites", bound=Value)


def with_places(config: Config, value: _Cites, at: At = "value") -> _Cites:
    """Return a copy in which each part that cites a fleet.yaml key also has its file and line."""
    done: dict[int, object] = {}
    """Identity of a part to its copy, since thousands of parts share their reasons."""

    def placed(part: object) -> object:
        if id(part) in done:
            return done[id(part)]
        if isinstance(part, Value):
            found: object = in_value(part)
        elif type(part) is tuple:
            found = tuple(map(placed, part))
        else:
            return part
        return done.setdefault(id(part), found)

    def in_value(part: Value) -> object:
        fields = type(part).model_fields
        update = {name: placed(getattr(part, name)) for name in fields}
        if "place" in fields and (path := getattr(part, "path", None)):
            update["place"] = place_of(config, path, at)
        return part.altered(**update)

    return cast("_Cites", placed(value))


def place_of(config: Config, path: Path, at: At = "value") -> str:
    """Return a key's position in fleet.yaml, or a text that says its value is a default."""
    document = config.document
    written = document.value if isinstance(document.value, dict) else {}
    if path[0] in written:
        return document.place(path, at)
    return f"{'.'.join(map(str, path))} (default, not set in {document.name})"
