"""Read and write the files a person names; a file is written whole or not at all."""

import errno
import fcntl
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from fleet.errors import FileUnreadable
from fleet.schema.source import check_size

_WORDS = {
    errno.ENOENT: "there is no such file or directory",
    errno.EISDIR: "this is a directory, not a file",
    errno.ENOTDIR: "a part of its path is not a directory",
    errno.EACCES: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ELOOP: "too many symbolic links",
    errno.ENAMETOOLONG: "the name is too long",
}


_STREAMS = {"/dev", "/dev/fd", "/proc/self/fd"}
"""What a person names, as /dev/stdin."""


class LocalFiles:
    """The files of this computer; `within` is where included files have to stand."""

    def __init__(self, within: str | None = None) -> None:
        self._within = None if within is None else Path(within or ".")
        self._is_stream = within in _STREAMS

    def read(self, name: str, limit: int) -> bytes:
        """Return a file's bytes, reading no more than limit.

        What is `within` is a regular file there: no pipe that waits, no link that leads elsewhere.
        """
        try:
            # Fleet does not wait for the other end of a pipe.
            with open(name, "rb", opener=_open_at_once) as stream:
                os.set_blocking(stream.fileno(), True)
                if self._within is not None:
                    self._check(name, stream)
                content = stream.read(limit + 1)
        except (OSError, ValueError) as error:
            raise _unreadable(name, error, "cannot be read") from error
        check_size(name, len(content), limit)
        return content

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return the files that match, sorted; a link that leads elsewhere is refused."""
        names = sorted(name for name in glob.glob(pattern) if not os.path.isdir(name))  # noqa: PTH112, PTH207 - names stay as they were written
        for name in names:
            self._check_place(name)
        return tuple(names)

    def _check(self, name: str, stream: IO[bytes]) -> None:
        self._check_place(name)
        if not (self._is_stream or stat.S_ISREG(os.fstat(stream.fileno()).st_mode)):
            raise FileUnreadable(f"{name}: this is no regular file")

    def _check_place(self, name: str) -> None:
        if self._within is None or self._is_stream:
            return
        base = os.path.realpath(self._within)
        # A link in a circle stays where it is, and cannot be read.
        if not Path(os.path.realpath(name)).is_relative_to(base):
            raise FileUnreadable(f"{name}: leads out of {self._within}")

    def write_text(self, name: str, text: str) -> None:
        """Write a file: all of it or, when that fails, nothing."""
        self.write_lines(name, (text,))

    def write_lines(self, name: str, lines: Iterable[str]) -> None:
        """Write the same some lines at a time: a plan may be long."""
        try:
            _write(Path(name), map(str.encode, lines))
        except (OSError, ValueError) as error:
            raise _unreadable(name, error, "cannot be written") from error


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)


def make_private(path: Path) -> None:
    """Make a file that is not there yet, for its owner alone, and its folder; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))


DRAFTS = ".fleet-new-"
"""How the name of a folder begins that a run which makes files leaves where it is killed."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until nobody else is in this block for a folder; where it takes no lock, go on."""
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def create_files(files: Mapping[str, tuple[bytes, int | None]]) -> tuple[Path, ...]:
    """Make files with these contents and modes, None as the umask says: all of them or none.

    The last one is made last: where a process is killed in between, it is not there. One that is
    there already and says the same stays, any other is an error. Returns those that were made.
    Raises FileUnreadable with the name of the file that could not be made.
    """
    made: list[Path] = []
    name = ""
    try:
        with TemporaryDirectory(prefix=DRAFTS, dir=".") as drafts:
            draft = Path(drafts, "draft")
            for name, (content, mode) in files.items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                replace_file(draft, content, mode=mode)
                if not _holds(Path(name), content):
                    # Unlike a rename, it never replaces what somebody made meanwhile.
                    os.link(draft, name)
                    made.append(Path(name))
                draft.unlink()
    except BaseException as error:
        for path in made:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unreadable(name or ".", error, "cannot be written") from error
        raise
    return tuple(made)


def replace_file(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Write a file whole, where it says something else; others may read it meanwhile.

    `mode` says who may read it; None: who might before, and whom the umask lets read a new one.
    Raises OSError with its name, and then it is as it was.
    """
    try:
        if not _holds(path, content):
            _replace(path, (content,), mode)
        elif mode is not None and stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)
    except OSError as error:
        # A full disk names no file, and a draft is none that a person knows.
        error.filename = str(path)
        raise


def _replace(path: Path, content: Iterable[bytes], mode: int | None) -> None:
    # In the same directory, so that the rename is atomic. Process ids repeat in containers.
    name = os.fsencode(path.name)[:200].decode(errors="ignore")
    draft = path.with_name(f".{name}.{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(draft, flags, mode or 0o666), "wb") as new:
        try:
            new.writelines(content)
            new.flush()
            if mode is not None:
                os.fchmod(new.fileno(), mode)
            elif path.exists():
                os.fchmod(new.fileno(), stat.S_IMODE(path.stat().st_mode))
            os.fsync(new.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _write(path: Path, content: Iterable[bytes]) -> None:
    if str(path.parent) in _STREAMS:
        number = {"stdout": "1", "stderr": "2"}.get(path.name, path.name)
        # With a file opened twice, one would write over what the other wrote.
        with open(os.dup(int(number)) if number.isdecimal() else path, "wb") as stream:  # noqa: PTH123 - by its number
            stream.writelines(content)
        return
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(path.parent)):
        # A checkout may hold links that somebody else made.
        raise ValueError(f"this link leads out of {path.parent}; name the file itself")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        # A device or a pipe: there is nothing to replace.
        with target.open("wb") as device:
            device.writelines(content)
    else:
        _replace(target, content, None)


def _unreadable(name: str, error: OSError | ValueError, what: str) -> FileUnreadable:
    number = error.errno if isinstance(error, OSError) else None
    strerror = error.strerror if isinstance(error, OSError) else str(error)
    return FileUnreadable(f"{name}: {what}: {_WORDS.get(number or 0, strerror or 'unknown')}")
