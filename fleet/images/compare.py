"""This module compares two roots that should be alike, and says of each file that differs why."""

import hashlib
import os
import re
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from pydantic import BaseModel

_REASONS = (
    (r"/var/cache/apt/.*|/var/lib/apt/.*", "apt's own record of when it last looked or installed"),
    (r"/var/lib/dpkg/.*", "dpkg's record of the order and time of installation"),
    (r"/etc/shadow", "the day on which a user was made, which useradd takes from the clock"),
    (
        r"/boot/initrd\.img-.*",
        "the initrd holds times, which update-initramfs takes from the clock",
    ),
    (r"/var/log/.*", "a log of the build"),
    (r"/var/cache/.*", "a cache that a package made at its installation"),
    (r".*\.pyc", "Python's compiled form of a module holds when the module was written"),
    (r"/etc/ssl/certs/java/.*", "a key store with times in it"),
    (r"/var/lib/systemd/.*", "systemd's record of what was set up when"),
)
_UNKNOWN = "not known: worth a look, for the same recipe should give the same file"


class Difference(BaseModel):
    """A file that is not the same in two roots."""

    path: str
    what: str
    """Which of its properties differ."""
    why: str


class Differences(BaseModel):
    """What a second build of the same recipe, from the same archive, gave."""

    same_base: bool
    """The base root file system is the same to the last bit."""
    base: tuple[Difference, ...] = ()
    """What differs in the base, by path."""
    files: tuple[Difference, ...]
    """What differs in the finished one, by path."""

    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """Return path, what differs and why, for rendering."""
        base = ((each.path, f"in the base: {each.what}", each.why) for each in self.base)
        return (*base, *((each.path, each.what, each.why) for each in self.files))


Listing = Mapping[str, Mapping[str, str]]
"""Path to its properties."""


def listing(root: Path) -> Listing:
    """Return every file of a root with what counts of it: not when it was last touched."""
    found: dict[str, dict[str, str]] = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            found[f"/{path.relative_to(root)}"] = _properties(path)
    return found


def contents(archive: Path) -> Listing:
    """Return every file of a root in an archive, and when it was written."""
    with tarfile.open(archive) as tar:
        return {
            each.name.removeprefix("."): {
                "type": each.type.decode(),
                "mode": f"{each.mode:o}",
                "owner": f"{each.uid}:{each.gid}",
                "time": str(each.mtime),
                "content": each.linkname or _digest(tar.extractfile(each)),
            }
            for each in tar
        }


def compare(first: Listing, second: Listing) -> tuple[Difference, ...]:
    """Return what differs, by path."""
    differences = []
    for path in sorted({*first, *second}):
        here, there = first.get(path), second.get(path)
        if here == there:
            continue
        if here is None or there is None:
            what = "only in the second" if here is None else "only in the first"
        else:
            what = ", ".join(key for key in here if here[key] != there.get(key, ""))
        differences.append(Difference(path=path, what=what, why=_why(path)))
    return tuple(differences)


def _properties(path: Path) -> dict[str, str]:
    about = path.lstat()
    kind = stat.S_IFMT(about.st_mode)
    found = {
        "type": f"{kind:o}",
        "mode": f"{stat.S_IMODE(about.st_mode):o}",
        "owner": f"{about.st_uid}:{about.st_gid}",
        "content": "",
    }
    if stat.S_ISLNK(about.st_mode):
        found["content"] = str(path.readlink())
    elif stat.S_ISREG(about.st_mode):
        with path.open("rb") as file:
            found["content"] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _digest(file: IO[bytes] | None) -> str:
    return hashlib.sha256(file.read()).hexdigest() if file else ""


def _why(path: str) -> str:
    return next((why for pattern, why in _REASONS if re.fullmatch(pattern, path)), _UNKNOWN)
