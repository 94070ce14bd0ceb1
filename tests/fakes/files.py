"""A written fake of the port `Files`: files that exist only in a test."""

import fnmatch
from collections.abc import Mapping

from fleet.errors import FileUnreadable


class FakeFiles:
    """Files by name; nothing else exists."""

    def __init__(self, files: Mapping[str, str | bytes]) -> None:
        self._files = {
            name: content.encode() if isinstance(content, str) else content
            for name, content in files.items()
        }

    def read(self, name: str, limit: int) -> bytes:
        """Return a file's bytes; raises FileUnreadable, also when it is longer than limit."""
        if name not in self._files:
            raise FileUnreadable(f"{name}: cannot be read: there is no such file")
        if len(self._files[name]) > limit:
            raise FileUnreadable(f"{name}: larger than {limit} bytes")
        return self._files[name]

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return the names that match, sorted."""
        return tuple(sorted(n for n in self._files if fnmatch.fnmatchcase(n, pattern)))
