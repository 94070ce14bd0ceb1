"""Read and write files that a user names. All writes are atomic."""

import errno
import fcntl
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.errors import FileUnreadable
from fleet.schema.source import check_size

_ERRNO_MESSAGES = {
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


_STREAM_FOLDERS = {"/dev", "/dev/fd", "/proc/self/fd"}
"""Folders that contain streams, such as /dev/stdin."""


class LocalFiles:
    """Files of this computer. With `within`, only files in that folder can be read."""

    def __init__(self, within: str | None = None) -> None:
        self._within = None if within is None else Path(within or ".")
        self._is_stream = within in _STREAM_FOLDERS

    def read(self, name: str, limit: int) -> bytes:
        """Return the content of a file; raises FileUnreadable, also if longer than `limit` bytes.

        With `within`, the file must be a regular file in that folder, not a pipe or a link out of
        it.
        """
        try:
            # Open a pipe without waiting for its other end.
            with open(name, "rb", opener=_open_nonblocking) as stream:
                os.set_blocking(stream.fileno(), True)
                self._check_location(name)
                is_free = self._within is None or self._is_stream
                if not (is_free or stat.S_ISREG(os.fstat(stream.fileno()).st_mode)):
                    raise FileUnreadable(f"{name}: this is no regular file")
                content = stream.read(limit + 1)
        except (OSError, ValueError) as error:
            raise _unreadable(name, error, "cannot be read") from error
        check_size(name, len(content), limit)
        return content

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return matching file names, sorted; raises FileUnreadable for a link out of `within`."""
        names = sorted(name for name in glob.glob(pattern) if not os.path.isdir(name))  # noqa: PTH112, PTH207 - names stay as they were written
        for name in names:
            self._check_location(name)
        return tuple(names)

    def _check_location(self, name: str) -> None:
        if self._within is None or self._is_stream:
            return
        base = os.path.realpath(self._within)
        # A circular link is in the folder, but cannot be read.
        if not Path(os.path.realpath(name)).is_relative_to(base):
            raise FileUnreadable(f"{name}: leads out of {self._within}")

    def write_text(self, name: str, text: str) -> None:
        """Write a file atomically."""
        self.write_lines(name, (text,))

    def write_lines(self, name: str, lines: Iterable[str]) -> None:
        """Write a file atomically from parts. A plan may be too long for one string."""
        try:
            _write(Path(name), map(str.encode, lines))
        except (OSError, ValueError) as error:
            raise _unreadable(name, error, "cannot be written") from error


def _open_nonblocking(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY)


def make_private(path: Path) -> None:
    """Create an empty file that only its owner can access, and its folder; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600))


DRAFT_PREFIX = ".fleet-new-"
"""Name prefix of temporary folders. A killed `create_files` leaves such a folder behind."""


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder while the body runs, if the file system supports locks."""
    held = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def create_files(files: Mapping[str, tuple[bytes, int | None]]) -> tuple[Path, ...]:
    """Create all of these files or none, and return the created paths.

    `files` maps path to content and mode; mode None: by the umask. The last file is created last:
    if it exists, all files do. An existing file with equal content is kept. Raises FileUnreadable
    with the name of the file if one exists with other content or cannot be created.
    """
    made: list[Path] = []
    name = ""
    try:
        with TemporaryDirectory(prefix=DRAFT_PREFIX, dir=".") as drafts:
            draft = Path(drafts, "draft")
            for name, (content, mode) in files.items():
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                replace_file(draft, content, mode=mode)
                if not _has_content(Path(name), content):
                    # A link, unlike a rename, never replaces a file that another process created.
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
    """Replace a file atomically, unless its content is already equal.

    `mode` None keeps the mode of an existing file; a new file gets its mode from the umask. Raises
    OSError with the name of the file, which is then unchanged.
    """
    try:
        if not _has_content(path, content):
            _replace(path, (content,), mode)
        elif mode is not None and stat.S_IMODE(path.stat().st_mode) != mode:
            path.chmod(mode)
    except OSError as error:
        # The error of a full disk names no file, and the user does not know the draft's name.
        error.filename = str(path)
        raise


def _replace(path: Path, content: Iterable[bytes], mode: int | None) -> None:
    # The draft is in the same folder, so that the rename is atomic. Its name is random, because
    # containers reuse process ids.
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


def _has_content(path: Path, content: bytes) -> bool:
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _write(path: Path, content: Iterable[bytes]) -> None:
    if str(path.parent) in _STREAM_FOLDERS:
        number = {"stdout": "1", "stderr": "2"}.get(path.name, path.name)
        # Two open files with separate positions would overwrite each other's output.
        with open(os.dup(int(number)) if number.isdecimal() else path, "wb") as stream:  # noqa: PTH123 - by its number
            stream.writelines(content)
        return
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(path.parent)):
        # A checkout may contain links that another user created.
        raise ValueError(f"this link leads out of {path.parent}; name the file itself")
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        # A device or pipe cannot be replaced.
        with target.open("wb") as device:
            device.writelines(content)
    else:
        _replace(target, content, None)


def _unreadable(name: str, error: OSError | ValueError, what: str) -> FileUnreadable:
    number = error.errno if isinstance(error, OSError) else None
    strerror = error.strerror if isinstance(error, OSError) else str(error)
    return FileUnreadable(
        f"{name}: {what}: {_ERRNO_MESSAGES.get(number or 0, strerror or 'unknown')}"
    )
