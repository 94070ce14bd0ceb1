"""Run the programs that a build needs, and report their errors.

A lock file contains a random word, which all holders of the lock read. With this word, a run
recognizes objects that a killed run left.
"""

import fcntl
import os
import pwd
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast

from fleet.clock import utc_now
from fleet.errors import FileUnreadable, FleetError, Locked, touching
from fleet.ports import Tell

ROOT_SCRIPT = Path(__file__).with_name("root.sh")
_SYSTEM_PATHS = ("/usr/local/sbin", "/usr/sbin", "/sbin")
"""Folders of programs that are missing in an ordinary user's PATH."""
ENVIRONMENT = {"HOME": "/root", "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"}
"""Environment of the programs of a build and of the scripts of packages.

It is equal for all users. Some settings of a user would change files of the image (for example
PYTHONDONTWRITEBYTECODE), and scripts of packages must not see the user's tokens.
"""
_SCHEMES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
PROXIES = (*_SCHEMES, *map(str.upper, _SCHEMES))
"""Variables that programs inherit from the caller, because they may need a proxy."""
_MAX_SHOWN_LINES = 12
"""Maximum number of output lines in an error message. The log has all lines."""
_TIMEOUT_SECONDS = 120

MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
"""Machine name of the kernel (as in `uname -m`) to Debian's architecture name."""
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
"""Program to the Debian package that contains it."""


class ProgramFailed(FleetError):
    """The failure of a program. The message has the last lines, `output` has all lines."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def find(program: str) -> str | None:
    """Return the path of a program in PATH or the sbin folders; None if the program is missing."""
    return shutil.which(program, path=search_path())


def need(program: str) -> str:
    """Return the path of a program. If it is missing, raise FleetError with its package."""
    found = find(program)
    if found is None:
        raise FleetError(missing([program]))
    return found


def missing(programs: Iterable[str]) -> str:
    """Return an error with the missing programs and their packages; empty if all are installed."""
    absent = [program for program in programs if find(program) is None]
    if not absent:
        return ""
    packages = " ".join(dict.fromkeys(PACKAGES.get(program, program) for program in absent))
    return f"this computer lacks {', '.join(absent)}; on Debian: apt install {packages}"


def run(
    *command: str | Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    hear: Tell | None = None,
) -> str:
    """Run a program; log its command line and errors; return its standard output.

    Its environment is ENVIRONMENT, `env`, PATH and the caller's proxies. `hear` gets each line of
    the output, which is then logged too. An interruption kills the program. Raises ProgramFailed.
    """
    words = [str(word) for word in command]
    proxies = {name: os.environ[name] for name in PROXIES if name in os.environ}
    output = b""
    with log.open("ab", buffering=0) as text:
        text.write(f"+ {' '.join(words)}\n".encode())
        start = text.tell()
        with subprocess.Popen(  # noqa: S603 - a program of fleet's choice, no shell
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=text,
            env={**proxies, "PATH": search_path(), **ENVIRONMENT, **(env or {})},
            start_new_session=True,  # only this process handles Ctrl-C
        ) as child:
            to_child, from_child = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
            try:
                with suppress(BrokenPipeError), to_child:
                    to_child.write(stdin)
                for line in from_child:
                    output += line
                    if hear:
                        text.write(line)
                        hear(line.decode(errors="replace").rstrip("\n"))
            except BaseException:
                child.kill()
                raise
        if child.returncode and not hear:
            text.write(output)
    if child.returncode:
        said = log.read_bytes()[start:].decode(errors="replace")
        raise ProgramFailed(f"{words[0]} ended with {child.returncode}:\n{last_of(said)}", said)
    return output.decode(errors="replace")


def run_on(
    file: IO[bytes],
    program: str,
    *args: str,
    stdin: bytes = b"",
    seconds: float = _TIMEOUT_SECONDS,
    failing: str = "",
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program that inherits an open file, with an English locale and a timeout.

    Raises FleetError with the package to install if the program is missing. If the program fails
    and `failing` is set, raises FileUnreadable with this text and the last line of the errors.
    """
    done = subprocess.run(  # noqa: S603 - programs of fleet's choice
        [need(program), *args],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=seconds,
        pass_fds=(file.fileno(),),
        env={**os.environ, "LC_ALL": "C.UTF-8", "PAGER": "cat", "DEBUGFS_PAGER": "cat"},
    )
    if done.returncode and failing:
        raise FileUnreadable(f"{failing}: {last_line(done.stderr)}")
    return done


def root_script(call: str) -> str:
    """Return a shell script that calls a function of `root.sh`, for the root of an image."""
    return f"set -eu\n{ROOT_SCRIPT.read_text(encoding='utf-8')}{call}\n"


def last_line(text: bytes) -> str:
    """Return the last line of a program's error output, for an error message."""
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no error message"


def last_of(output: str) -> str:
    """Return the last error lines of a program's output, or the last lines without errors."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("E: ", "Err:", "error:"))]
    shown = (told or lines)[-_MAX_SHOWN_LINES:]
    return "\n".join(f"  {line}" for line in shown) or "  no output"


def search_path() -> str:
    """Return PATH with the folders of programs that only root has in it."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_PATHS))


def explain_no_namespaces() -> str:
    """Return why this computer cannot create namespaces, with a remedy; empty if it can."""
    ordinary = os.geteuid() != 0
    if lacking := missing(("setpriv", "unshare", *(("newuidmap",) if ordinary else ()))):
        return lacking
    tried = subprocess.run(isolated("true"), check=False, capture_output=True)  # noqa: S603 - fixed words
    if not tried.returncode:
        return ""
    told = f"no namespaces can be made here: {last_line(tried.stderr)}"
    if not ordinary:
        return told
    names = (each.pw_name for each in pwd.getpwall() if each.pw_uid == os.getuid())
    return (
        f"{told}; an ordinary user bakes with a range of subordinate ids, by root: usermod "
        "--add-subuids 100000-165535 --add-subgids 100000-165535 "
        f"{next(names, os.getuid())}"
    )


def isolated(*command: str | Path) -> list[str]:
    """Return a command line that runs `command` in new namespaces."""
    mapped = () if os.geteuid() == 0 else ("--user", "--map-root-user", "--map-auto")
    return [
        *(find("setpriv") or "setpriv", "--pdeathsig=KILL", "--"),
        *(find("unshare") or "unshare", *mapped, "--mount", "--propagation=private", "--pid"),
        *("--fork", "--kill-child=KILL", "--mount-proc", "--", *map(str, command)),
    ]


def as_root(program: str, *args: str | Path) -> list[str]:
    """Return a command line that runs a program as root, of a user namespace for ordinary users.

    Raises FleetError if the program is missing or this user may not create namespaces.
    """
    command = (need(program), *map(str, args))
    if os.geteuid() == 0:
        return [*command]
    if why := explain_no_namespaces():
        raise FleetError(why)
    return isolated(*command)


@contextmanager
def held(path: Path, *, busy: str = "") -> Iterator[str]:
    """Lock a file, and yield the random word in the file.

    Wait for other holders. With `busy`, raise Locked with this text and the holder instead. The
    kernel unlocks the file when the process dies.
    """
    with touching(path, FileUnreadable):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)  # colleagues may share a folder
    with os.fdopen(descriptor, "r+b", buffering=0) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            said = lock.readall().decode(errors="replace")
            raise Locked(busy.format(*said.splitlines()[-1:], "another")) from None
        word = lock.readline().decode(errors="replace").strip()
        if not word.isalnum():
            word = secrets.token_hex(8)
        # In place: a killed process, or a full disk, must not lose the word of earlier holders.
        with touching(path, FileUnreadable):
            lock.seek(0)
            holder = f"process {os.getpid()} since {utc_now():%Y-%m-%d %H:%M} UTC"
            lock.write(f"{word}\n{holder}\n".encode())
            lock.truncate()
        yield word
