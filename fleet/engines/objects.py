"""This module says how what a Pulumi backend holds is reached without the CLI: by key.

Of every kind of backend the keys are the same: `.pulumi/stacks/PROJECT/STACK.json` and
`.pulumi/locks/…`.
"""

from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit


class Objects(Protocol):
    """What one backend holds, by key; each raises StoreFailed where it does not answer."""

    place: str
    """Where it is, without credentials."""

    def read(self, key: str) -> bytes | None:
        """Return what a key holds; None when there is nothing."""

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, sorted."""

    def create(self, key: str, content: bytes) -> None:
        """Write what is not there yet; StoreFailed where it is."""

    def remove(self, key: str) -> None:
        """Remove what a key holds; nothing is fine."""


def file_root(backend: str) -> Path | None:
    """Return the folder of a file backend; None for any other."""
    if not backend.startswith("file://"):
        return None
    folder = unquote(backend.removeprefix("file://").split("?")[0])
    return Path(folder).expanduser() / ".pulumi"


def place_of(backend: str) -> str:
    """Return a backend's URL without what may be a secret: its password, its parameters."""
    parts = urlsplit(backend)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
