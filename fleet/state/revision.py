"""Read fleet.yaml and its included files from a git revision.

Git runs before the process is confined, because a confined process must not start programs.
"""

import os
import subprocess
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from posixpath import dirname, join, normpath, realpath, relpath
from typing import NamedTuple

from fleet.errors import FileUnreadable
from fleet.schema.source import LIMIT, check_size, read_document

_BLOB = "blob"
_LINK = "120000"
_GIT_ENVIRONMENT = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
_GIT_TIMEOUT_SECONDS = 60
"""Time limit of one git command in seconds."""


class _Entry(NamedTuple):
    """A file in a git revision."""

    mode: str
    digest: str
    size: int


class Revision:
    """The files of a folder in a git revision. Each file is read once and cached."""

    def __init__(self, revision: str, folder: str) -> None:
        self._revision = revision
        self._folder = folder or "."
        self._read: dict[str, bytes] = {}
        commit = self._git("rev-parse", "--verify", f"{self._revision}^{{commit}}").decode()
        listed = self._git("ls-tree", "-r", "-z", "-l", commit.strip()).decode(errors="replace")
        self._entries: Mapping[str, _Entry] = dict(_parse_entries(listed))

    def read(self, name: str, limit: int) -> bytes:
        """Return a file's content; raises FileUnreadable, also if longer than `limit` bytes."""
        entry = self._entries.get(relpath(name, self._folder))
        if entry is None:
            raise FileUnreadable(f"{name}: revision {self._revision} has no such file")
        if entry.mode == _LINK:
            raise FileUnreadable(f"{name}: this is a link in revision {self._revision}")
        check_size(name, entry.size, limit)
        if entry.digest not in self._read:
            self._read[entry.digest] = self._git("cat-file", _BLOB, entry.digest)
        return self._read[entry.digest]

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Return the matching file names in the revision, sorted."""
        wanted = PurePosixPath(normpath(pattern)).parts
        folder = "" if self._folder == "." else self._folder
        paths = [join(folder, name) for name in self._entries]
        parts = {path: PurePosixPath(normpath(path)).parts for path in paths}
        # `*` matches no hidden name.
        found = (
            path
            for path, own in parts.items()
            if len(own) == len(wanted)
            and all(
                fnmatchcase(part, each) and (each.startswith(".") or not part.startswith("."))
                for part, each in zip(own, wanted, strict=True)
            )
        )
        return tuple(sorted(found))

    def _git(self, *words: str) -> bytes:
        """Run git and return its output; raises FileUnreadable with git's error message."""
        asked = f"{self._revision} is no .yaml file, and"
        try:
            done = subprocess.run(  # noqa: S603 - git, in the folder of fleet.yaml
                # A branch may contain files that look like a git repository with programs to run.
                ("git", "-c", "safe.bareRepository=explicit", "-C", self._folder, *words),  # noqa: S607 - as it is on PATH
                check=False,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env=os.environ | _GIT_ENVIRONMENT,
                timeout=_GIT_TIMEOUT_SECONDS,
            )
        except (FileNotFoundError, PermissionError) as error:
            raise FileUnreadable(
                f"{asked} git, which knows revisions, is not installed; name a file"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise FileUnreadable(
                f"{asked} git did not end within {_GIT_TIMEOUT_SECONDS} s"
            ) from error
        if done.returncode == 0:
            return done.stdout
        said = done.stderr.decode(errors="replace").strip().split("\n")[0]
        raise FileUnreadable(f"{asked} {self._explain(said)}")

    def _explain(self, said: str) -> str:
        if "not a git repository" in said:
            return f"{realpath(self._folder)} is not in a git repository"
        if "Needed a single revision" in said:
            return "git knows no such revision; `git fetch` gets those of the server"
        return f"git cannot read it as a revision: {said.removeprefix('fatal: ')}"


def is_file_name(base: str) -> bool:
    """Return whether a text is a file name instead of a revision, by its suffix alone.

    A merge request may add a file of any name, even `origin/main`.
    """
    return base.endswith((".yaml", ".yml"))


def read_revision(revision: str, name: str) -> Revision:
    """Return the files of a revision, with fleet.yaml and its included files already read.

    Raises FileUnreadable if git is not installed or the revision does not exist.
    """
    files = Revision(revision, dirname(name))
    files.read(name, LIMIT)
    read_document(name, files)
    return files


def _parse_entries(listed: str) -> Iterator[tuple[str, _Entry]]:
    for each in filter(None, listed.split("\0")):
        about, _, name = each.partition("\t")
        mode, kind, digest, size = about.split()
        if kind == _BLOB:
            yield name, _Entry(mode, digest, int(size))
