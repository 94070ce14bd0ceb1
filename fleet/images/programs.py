"""Run the programs that a build needs; a message says why one failed.

The holder of a file reads in it what earlier holders, dead by now, left behind.
"""

import fcntl
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

from fleet.errors import FileUnreadable, FleetError, touching
from fleet.model.images import Transfer

_SEARCHED = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""What an ordinary user's PATH leaves out."""
ENVIRONMENT = {"HOME": "/root", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"}
"""What a build's programs are told of the world, and with them what packages run.

It is the same for every user: of their settings some would show in the files, as where Python is
not to keep what it compiled, and a token of theirs is nothing for a package's script.
"""
_SCHEMES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
PROXIES = (*_SCHEMES, *map(str.upper, _SCHEMES))
"""What of the caller's environment is handed on: it says how to reach the archive."""
_SHOWN = 12
"""Lines of a failing program's output that go into the error; the log holds all of it."""
_SECONDS = 120

PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "mkfs.vfat": "dosfstools",
    "mcopy": "mtools",
    "sfdisk": "fdisk",
    "syslinux": "syslinux",
    "qemu-img": "qemu-utils",
    "newuidmap": "uidmap",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "tar": "tar",
    "debugfs": "e2fsprogs",
    "mdir": "mtools",
    "qemu-system-x86_64": "qemu-system-x86",
}
"""Program to the Debian package that has it."""


class ProgramFailed(FleetError):
    """A program ended with an error; the text holds what it said last, `output` all of it."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def find(program: str) -> str | None:
    """Return where a program lies, also one for root alone; None where there is none."""
    return shutil.which(program, path=_path())


def need(program: str) -> str:
    """Return where a program lies; raises FleetError with what to install where it is not."""
    found = find(program)
    if found is None:
        raise FleetError(missing([program]))
    return found


def missing(programs: Iterable[str]) -> str:
    """Return what to install for the programs that are not there; empty: all are."""
    absent = [program for program in programs if find(program) is None]
    if not absent:
        return ""
    packages = " ".join(dict.fromkeys(PACKAGES[program] for program in absent))
    return f"this computer lacks {', '.join(absent)}; on Debian: apt install {packages}"


def run(
    *command: str | Path, log: Path, env: Mapping[str, str] | None = None, stdin: bytes = b""
) -> str:
    """Run a program to its end, its words in the log; return what it wrote to standard output.

    It gets ENVIRONMENT, and of ours but the way to programs and through proxies.
    """
    words = [str(word) for word in command]
    with log.open("ab") as text:
        text.write(f"+ {' '.join(words)}\n".encode())
        done = subprocess.run(  # noqa: S603 - a program of ours with words of ours, no shell
            words,
            check=False,
            input=stdin,
            capture_output=True,
            env={**_handed_on(), "PATH": _path(), **ENVIRONMENT, **(env or {})},
        )
        text.write(done.stderr)
        if done.returncode:
            text.write(done.stdout)
    if done.returncode:
        said = (done.stderr + done.stdout).decode(errors="replace")
        raise ProgramFailed(f"{words[0]} ended with {done.returncode}:\n{last_of(said)}", said)
    return done.stdout.decode(errors="replace")


def run_on(
    file: IO[bytes], program: str, *args: str, stdin: bytes = b"", seconds: float = _SECONDS
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program that has an open file, for a limited time; it speaks English.

    Raises FleetError with the package to install if the program is missing.
    """
    return subprocess.run(  # noqa: S603 - programs of our own choice
        [need(program), *args],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=seconds,
        pass_fds=(file.fileno(),),
        env={**os.environ, "LC_ALL": "C.UTF-8", "PAGER": "cat", "DEBUGFS_PAGER": "cat"},
    )


def last_of(output: str) -> str:
    """Return what of a program's output tells most: what it calls errors, else its last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("E: ", "Err:", "error:"))]
    shown = (told or lines)[-_SHOWN:]
    return "\n".join(f"  {line}" for line in shown) or "  no output"


def _handed_on() -> dict[str, str]:
    return {name: os.environ[name] for name in PROXIES if name in os.environ}


def _path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_SEARCHED))


Tell = Callable[[Transfer], None]


class Total:
    """How far one phase of an upload is."""

    def __init__(
        self, tell: Tell, phase: Literal["prepare", "upload", "read back"], total: int
    ) -> None:
        self.total = total
        self._tell = tell
        self._phase = phase
        self._done = 0

    def move(self, count: int) -> None:
        """Add bytes that were moved; a try that starts again takes some away."""
        self._done = max(0, min(self._done + count, self.total))
        self._tell(Transfer(phase=self._phase, done=self._done, total=self.total))


@contextmanager
def held(path: Path) -> Iterator[str]:
    """Wait for a file, hold it, and yield its word; the kernel lets it go with the process."""
    with touching(path, FileUnreadable):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        word = os.read(descriptor, 64).decode(errors="replace").strip()
        if not word.isalnum():
            word = secrets.token_hex(8)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{word}\n".encode(), 0)
        yield word
    finally:
        os.close(descriptor)
