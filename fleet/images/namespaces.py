"""This module starts a program in namespaces of its own, as root or as an ordinary user.

What it mounts and starts ends with it, and it ends when we do, also when we are killed. An
ordinary user is root in there, with a range of subordinate ids for everyone else.
"""

import os
import pwd
from pathlib import Path

from fleet.images.programs import find, missing

_LENT = ("/etc/subuid", "/etc/subgid")


def why_not() -> str:
    """Return why nothing can be started so here, and what to do; empty: it can."""
    ordinary = os.geteuid() != 0
    lacking = missing(("setpriv", "unshare", *(("newuidmap",) if ordinary else ())))
    if lacking or not ordinary:
        return lacking
    name = _user()
    if all(_lends(Path(file), name) for file in _LENT):
        return ""
    return (
        f"an ordinary user bakes with a range of subordinate ids, and {name} has none in "
        f"{' and '.join(_LENT)}; as root: usermod --add-subuids 100000-165535 --add-subgids "
        f"100000-165535 {name}"
    )


def isolated(*command: str) -> list[str]:
    """Return a command that runs another in namespaces of its own."""
    mapped = () if os.geteuid() == 0 else ("--user", "--map-root-user", "--map-auto")
    return [
        *(find("setpriv") or "setpriv", "--pdeathsig=KILL", "--"),
        *(find("unshare") or "unshare", *mapped, "--mount", "--propagation=private", "--pid"),
        *("--fork", "--kill-child=KILL", "--mount-proc", "--", *command),
    ]


def _user() -> str:
    """Return who we are, whatever the environment says: a program that lends ids asks the same."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _lends(file: Path, name: str) -> bool:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.split(":")[0] in (name, str(os.getuid())) for line in lines)
