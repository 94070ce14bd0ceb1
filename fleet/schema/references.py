"""This module finds the secrets that a fleet.yaml names."""

from collections.abc import Iterator

from fleet.schema.base import CommandSecret, EnvSecret, FileSecret, Section

Secret = EnvSecret | FileSecret | CommandSecret


def secrets_in(value: object, path: str = "") -> Iterator[tuple[str, Secret]]:
    """Yield every secret that is named, with the path of its key."""
    match value:
        case EnvSecret() | FileSecret() | CommandSecret():
            yield path, value
        case Section():
            for name in type(value).model_fields:
                yield from secrets_in(getattr(value, name), f"{path}.{name}".lstrip("."))
        case dict():
            for name, part in value.items():
                yield from secrets_in(part, f"{path}.{name}")
