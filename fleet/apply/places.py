"""Where the keys of fleet.yaml that an explanation cites were written."""

from typing import TypeVar

from fleet.apply.config import Config
from fleet.model.values import Value
from fleet.schema.findings import At, Path

_Cites = TypeVar("_Cites", bound=Value)


def with_places(config: Config, value: _Cites, at: At = "value") -> _Cites:
    """Return a value in which whatever has a `path` has its `place` in fleet.yaml too."""
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    placed = {name: _placed(config, field, at) for name, field in fields.items()}
    if fields.get("path") and "place" in fields:
        placed["place"] = place_of(config, fields["path"], at)
    return value.model_copy(update=placed)


def _placed(config: Config, part: object, at: At) -> object:
    if isinstance(part, Value):
        return with_places(config, part, at)
    return tuple(_placed(config, each, at) for each in part) if type(part) is tuple else part


def place_of(config: Config, path: Path, at: At = "value") -> str:
    """Return where a key was written, or that it is a default."""
    document = config.document
    written = document.value if isinstance(document.value, dict) else {}
    if path[0] in written:
        return document.place(path, at)
    return f"{'.'.join(map(str, path))} (default, not set in {document.name})"
