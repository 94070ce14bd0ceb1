"""This module keeps published files in a directory of this computer, or one that is mounted.

A large file has its name only when it is whole and on the disk; until then it is NAME.partial.
"""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from fleet.errors import FileUnreadable
from fleet.store.files import LocalFiles, replace_file

_PIECE = 1 << 20
_PARTIAL = ".partial"
_MODE = 0o644


class Directory:
    """A Shelf in a directory, `file:///PATH`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.place = root.as_uri()

    def reach(self) -> None:
        """Raise where there is no such directory; the first file that is published makes it."""
        if not self._root.is_dir():
            raise FileUnreadable(
                f"{self._root} is not there, so what it holds is not known; mount it, or make an "
                "empty one if it is gone for good"
            )

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the names of files that begin so; those that are not whole too."""
        with _said(self._root):
            files = [path for path in self._root.rglob("*") if path.is_file()]
        names = (path.relative_to(self._root).as_posix() for path in files)
        return tuple(sorted(name for name in names if name.startswith(prefix)))

    def read(self, key: str, limit: int) -> bytes | None:
        """Return a small file; None where there is none."""
        path = self._root / key
        return LocalFiles().read(str(path), limit) if path.exists() else None

    def write(self, key: str, content: bytes) -> None:
        """Write a small file, whole or not at all."""
        path = self._root / key
        with _said(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, content, mode=_MODE)
            _sync(path.parent)

    def put(self, key: str, source: Path, moved: Callable[[int], None]) -> None:
        """Copy a file; what an earlier try wrote of it is compared and kept."""
        path = self._root / key
        draft = path.with_name(path.name + _PARTIAL)
        with _said(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with source.open("rb") as ours, draft.open("a+b") as theirs:
                # Whoever writes the same file at once waits, and finds it done.
                fcntl.flock(theirs, fcntl.LOCK_EX)
                _copy(ours, theirs, moved)
                if draft.exists():
                    draft.replace(path)
            _sync(path.parent)

    def sha256(self, key: str, moved: Callable[[int], None]) -> str:
        """Return the checksum of a file; empty where there is none."""
        path, digest = self._root / key, hashlib.sha256()
        if not path.exists():
            return ""
        with _said(path), path.open("rb") as file:
            while piece := file.read(_PIECE):
                digest.update(piece)
                moved(len(piece))
        return digest.hexdigest()

    def remove(self, prefix: str) -> None:
        """Remove the files that begin so, and folders that are empty by it."""
        for key in self.keys(prefix):
            path = self._root / key
            with _said(path):
                path.unlink(missing_ok=True)
                for folder in (path.parent, path.parent.parent):
                    if folder != self._root:
                        with contextlib.suppress(OSError):  # it holds something else
                            folder.rmdir()


def _copy(ours: BinaryIO, theirs: BinaryIO, moved: Callable[[int], None]) -> None:
    """Make one file like the other, from the first piece in which they differ."""
    theirs.seek(0)
    while piece := ours.read(_PIECE):
        if theirs.read(len(piece)) != piece:
            ours.seek(-len(piece), os.SEEK_CUR)
            break
        moved(len(piece))
    # Opened to append: what is written goes to the end, wherever the reading was.
    theirs.truncate(ours.tell())
    while piece := ours.read(_PIECE):
        theirs.write(piece)
        moved(len(piece))
    theirs.flush()
    os.fsync(theirs.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _said(path: Path) -> Iterator[None]:
    """Say of a file that cannot be read or written why."""
    try:
        yield
    except OSError as error:
        raise FileUnreadable(
            f"{error.filename or path}: {error.strerror}; what was written of it stays, "
            "and the next `fleet image publish` goes on with it"
        ) from error
