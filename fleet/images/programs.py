"""This module runs the programs that a build needs, and says why one failed."""

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleet.errors import FleetError

_SEARCHED = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""What an ordinary user's PATH leaves out."""
_SHOWN = 12
"""Lines of a failing program's output that go into the error; the log holds all of it."""

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
    "zstd": "zstd",
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
    """Run a program to its end, its words in the log; return what it wrote to standard output."""
    words = [str(word) for word in command]
    with log.open("ab") as text:
        text.write(f"+ {' '.join(words)}\n".encode())
        done = subprocess.run(  # noqa: S603 - a program of ours with words of ours, no shell
            words,
            check=False,
            input=stdin,
            capture_output=True,
            env={**os.environ, "PATH": _path(), "LC_ALL": "C.UTF-8", **(env or {})},
        )
        text.write(done.stderr)
        if done.returncode:
            text.write(done.stdout)
    if done.returncode:
        said = (done.stderr + done.stdout).decode(errors="replace")
        raise ProgramFailed(f"{words[0]} ended with {done.returncode}:\n{last_of(said)}", said)
    return done.stdout.decode(errors="replace")


def last_of(output: str) -> str:
    """Return what of a program's output tells most: what it calls errors, else its last lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("E: ", "Err:", "error:"))]
    shown = (told or lines)[-_SHOWN:]
    return "\n".join(f"  {line}" for line in shown) or "  it said nothing"


def _path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_SEARCHED))
