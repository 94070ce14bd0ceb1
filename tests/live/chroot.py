"""Build a Debian sid with Debusine in it, once, as this machine's apt is configured.

What it makes lies in the user's cache folder, keyed by the recipe; who uses it holds its lock.
Run as a program it prints the folder; exit code 3: there can be none here, and why.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SUITE = "sid"
PACKAGES = (
    *("debusine-server", "debusine-worker", "debusine-client"),
    *("postgresql", "redis-server", "mmdebstrap", "ca-certificates", "git"),
    # What the worker needs besides to carry out the task for images, as the role installs it.
    *("arch-test", "debvm", "dosfstools", "e2fsprogs", "fdisk", "mount", "mtools"),
    *("qemu-utils", "systemd-ukify", "uidmap"),
    # What contrib/debusine/hook.py matches patterns with.
    "python3-re2",
)
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PROGRAMS = ("mmdebstrap", "apt-get", "chroot", "nsenter", "setpriv", "unshare")
# No database is asked for at installation: `Server` makes its own.
_HOOK = (
    "echo debusine-server debusine-server/dbconfig-install boolean false"
    ' | chroot "$1" debconf-set-selections'
)
_OPTIONS = (
    *("--quiet", "--mode=root", "--variant=apt", f"--keyring={KEYRING}"),
    f"--include={','.join(PACKAGES)}",
    '--aptopt=APT::Install-Recommends "false"',
    *("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=force-unsafe-io"),
    f"--essential-hook={_HOOK}",
)
# What a machine has to say about how its archive is reached and how far it is trusted.
_PASSED_ON = re.compile(r"Acquire::(https?|Retries|Check-\S+|Max-ValidTime|Queue-Mode)\b.*;")
SECOND = "gw1"
"""The second process of tests, as pytest-xdist names it."""
BUILD_SECONDS = 25 * 60
ABSENT = 3


class Impossible(Exception):
    """No Debusine can be made here; the text says why."""


def main() -> int:
    """Print the folder, or why there can be none; what is being done goes to standard error."""
    try:
        root = built()
        built(SECOND)
        sys.stdout.write(f"{root}\n")
    except Impossible as reason:
        sys.stdout.write(f"{reason}\n")
        return ABSENT
    return 0


def built(process: str = "") -> Path:
    """Return the folder of the chroot, built where it is not there yet.

    Other processes than the first have copies of it.
    """
    folder = place(process)
    if reason := why_not():
        raise Impossible(reason)
    with locked(folder):
        if not (folder / "usr").is_dir():
            if process:
                _copy(built(), folder)
            else:
                _build(folder)
    return folder


def place(process: str = "") -> Path:
    """Return where the chroot of this recipe lies or would lie, for a process of the tests."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256(repr((SUITE, _OPTIONS)).encode()).hexdigest()[:16]
    name = f"debusine-{key}"
    return cache / "fleet" / (f"{name}-{process}" if process else name)


def why_not() -> str:
    """Return why no chroot can be built or entered here; empty when it can."""
    if os.geteuid() != 0:
        return "only root can make and enter a chroot"
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"a real Debusine needs {', '.join(missing)}"
    mounted = _run("unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "t", "/mnt")
    return "" if mounted.returncode == 0 else f"nothing can be mounted: {_why(mounted.stderr)}"


def tell(reason: str) -> int:
    """Print why something cannot be done here, and return the exit code; empty: it can."""
    if not reason:
        return 0
    sys.stdout.write(f"{reason}\n")
    return ABSENT


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have the chroot for oneself: who builds or uses it meanwhile is waited for."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + BUILD_SECONDS
    with folder.with_suffix(".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Impossible(f"{folder} is in use by another session") from None
                time.sleep(1)
            else:
                break
        yield


def dies_with_us() -> tuple[str, ...]:
    """Return what to put before a command so that it ends when this process does.

    It gets a mount and a process namespace of its own: what it mounts and starts ends with it.
    """
    unshare = ("unshare", "--mount", "--propagation=private", "--pid", "--fork")
    return ("setpriv", "--pdeathsig=KILL", "--", *unshare, "--kill-child=KILL", "--")


def _build(folder: Path) -> None:
    """Make the chroot beside its place and move it there when it is complete."""
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    source = f"deb {archive()} {SUITE} main"
    options = (*_OPTIONS, *(f"--aptopt={line}" for line in apt_configuration()))
    sys.stderr.write(f"building {folder} from {SUITE}: takes minutes\n")
    sys.stderr.flush()
    command = (*dies_with_us(), "mmdebstrap", *options, SUITE, str(partial), source)
    done = _run(*command, seconds=BUILD_SECONDS)
    if done.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise Impossible(f"mmdebstrap could not build Debian {SUITE}: {_why(done.stderr)}")
    partial.rename(folder)


def _copy(root: Path, folder: Path) -> None:
    """Copy the chroot while nobody uses it."""
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with locked(root):
        done = _run(
            *("cp", "--archive", "--reflink=auto", str(root), str(partial)), seconds=BUILD_SECONDS
        )
    if done.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise Impossible(f"the chroot cannot be copied: {_why(done.stderr)}")
    partial.rename(folder)


def archive() -> str:
    """Return the archive that this machine's apt is told to install Debian from."""
    done = _run("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages")
    sites = [site for site in dict.fromkeys(done.stdout.split()) if "security" not in site]
    if not sites:
        raise Impossible("apt is not told of any archive (apt-get indextargets)")
    return sites[0]


def apt_configuration() -> list[str]:
    """Return the lines of this machine's apt configuration that any apt here needs."""
    lines = _run("apt-config", "dump").stdout.splitlines()
    return [line for line in lines if _PASSED_ON.fullmatch(line)]


def _run(*command: str, seconds: float = 60) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        return subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no end after {seconds:.0f} s")


def _why(text: str) -> str:
    """Return the line that tells most: the first that apt calls an error, else the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or lines[-1:] or ["no error message"])[0]


if __name__ == "__main__":
    sys.exit(main())
