"""Log what a person's own commands write: a file for each machine and hook.

A log is bounded and read by its owner alone, secrets masked; one that cannot be written stops
nothing.
"""

import os
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from fleet.state.processes import mask

MOST_BYTES = 256 * 1024
"""A log that is longer becomes `HOOK.log.1`, in the place of the one before, at the next call."""
_MOST_OF_CALL = 1024 * 1024
"""Bytes of one call that are kept; what comes then is left out."""
_MOST_OF_LINE = 64 * 1024
MOST_MACHINES = 500
MOST_AGE = 14 * 86400
"""Seconds after which the logs of a machine that had no call since are deleted."""


class HookLog:
    """The log of one call; nothing is written for one that says nothing and is `quiet`."""

    def __init__(
        self, path: Path, hook: str, secrets: Collection[str], *, quiet: bool = False
    ) -> None:
        self.path = path
        self._hook = hook
        # What spans lines would not be recognised in one of them.
        self._secrets = frozenset(line for each in secrets for line in (each, *each.splitlines()))
        self._quiet = quiet
        self._file: int | None = None
        self._half = {"stdout": b"", "stderr": b""}
        self._left = _MOST_OF_CALL
        self.is_written = False
        if not quiet:
            self._write("begins")

    def hear(self, stream: str, data: bytes) -> None:
        """Take a part of what the command wrote; whole lines of it are written at once."""
        if stream == "stdout" and self._quiet:
            return
        lines, end, rest = (self._half[stream] + data).rpartition(b"\n")
        self._say(lines + end)
        if len(rest) > _MOST_OF_LINE:
            # Half a secret would not be recognised.
            self._say(b"(a line of more than 64 KiB is left out)\n")
            rest = b""
        self._half[stream] = rest

    def end(self, how: str, *, failed: bool) -> None:
        """Say how the command ended."""
        for half in self._half.values():
            self._say(half and half + b"\n")
        if failed or self.is_written:
            self._write(mask(how, self._secrets))
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _say(self, lines: bytes) -> None:
        if not lines or self._left <= 0:
            return
        text = mask(lines.decode(errors="replace"), self._secrets).encode()
        self._left -= len(text)
        self._put(text if self._left > 0 else b"(more of this call is left out)\n")

    def _write(self, what: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._put(f"--- {now} {self._hook} {what}\n".encode(errors="replace"))

    def _put(self, text: bytes) -> None:
        with suppress(OSError):
            if self._file is None:
                self._file = _open(self.path)
            os.write(self._file, text)
            self.is_written = True


def tidy(folder: Path) -> None:
    """Delete the logs of machines that had no call for long, and of the oldest beyond a number."""
    with suppress(OSError):
        newest = sorted(_ages(folder), reverse=True)
        until = time.time() - MOST_AGE
        for number, (at, path) in enumerate(newest):
            if number >= MOST_MACHINES or at < until:
                shutil.rmtree(path, ignore_errors=True)


def _ages(folder: Path) -> Iterator[tuple[float, Path]]:
    """Yield when each machine had its latest call, and where its logs are."""
    for machine in folder.iterdir():
        with suppress(OSError):  # another run deletes them too
            if machine.is_dir() and not machine.is_symlink():
                times = [log.stat().st_mtime for log in machine.iterdir()]
                yield max(times, default=machine.stat().st_mtime), machine


def _open(path: Path) -> int:
    """Open a log to add to it; one that is long becomes the older one first."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileNotFoundError):
        if path.stat().st_size > MOST_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.open(path, flags, 0o600)
