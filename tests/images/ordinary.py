"""Run fleet as an ordinary user, where root alone may read the Python it runs on."""

import pwd
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rigs.process import ROOT

_MADE = "fleet-test-bakes"


@contextmanager
def somebody() -> Iterator[str]:
    """Yield a user with subordinate ids: one that is there, else made for as long as it takes."""
    known = {user.pw_name for user in pwd.getpwall() if user.pw_uid != 0}
    lent = {line.split(":")[0] for line in _lines("/etc/subuid")}
    if there := sorted(known & lent & {line.split(":")[0] for line in _lines("/etc/subgid")}):
        yield there[0]
        return
    subprocess.run(["useradd", "--no-create-home", _MADE], check=True)
    try:
        yield _MADE
    finally:
        subprocess.run(["userdel", _MADE], check=True)


def as_user(user: str, home: Path) -> tuple[str, ...]:
    """Return what to put before a command, so that the user runs it and can read what it needs.

    Their settings are other than usual, for nothing of them is to show in what they make.
    Folders of root's own are opened in a mount namespace of the command alone.
    """
    needed = {Path(sys.base_prefix).resolve(), ROOT}
    closed = {found for path in needed if (found := _closed(path))}
    kept = {path: home / f".{number}" for number, path in enumerate(sorted(needed))}
    lines = []
    for path, place in kept.items():
        place.mkdir()
        lines.append(f"mount --bind {shlex.quote(str(path))} {place}")
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(path))}" for path in closed]
    for path, place in kept.items():
        if any(path.is_relative_to(each) for each in closed):
            quoted = shlex.quote(str(path))
            lines += [f"mkdir -p {quoted}", f"mount --bind {place} {quoted}"]
    becomes = ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "env")
    script = " && ".join((*lines, "umask 077", f'exec {shlex.join(becomes)} "$@"'))
    namespace = ("unshare", "--mount", "--propagation=private", "sh", "-c", script, "sh")
    return (*namespace, f"HOME={home}", "PYTHONDONTWRITEBYTECODE=1", "TZ=Asia/Tokyo", "LANG=C")


def _closed(path: Path) -> Path | None:
    """Return the outermost folder above that others may not pass; None where all may be."""
    above = reversed(path.parents)
    return next((each for each in above if not each.stat().st_mode & 0o001), None)


def _lines(file: str) -> list[str]:
    path = Path(file)
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
