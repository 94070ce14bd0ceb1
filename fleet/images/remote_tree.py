"""This module reads the files of a machine over ssh, as those of an image are looked into."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import Any

from fleet.errors import SourceUnreachable
from fleet.facts.image_checks import Node
from fleet.images.ssh import Ssh

_READER = """
import json, os, stat, sys

LONGEST = 1 << 20

def node(path):
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    target = os.readlink(path) if stat.S_ISLNK(found.st_mode) else ""
    return [found.st_mode, found.st_uid, found.st_gid, found.st_size, target]

def names(path):
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []

def text(path):
    found = node(path)
    if found is None or not stat.S_ISREG(found[0]) or found[3] > LONGEST:
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()

for line in sys.stdin:
    what, path = json.loads(line)
    print(json.dumps({"node": node, "names": names, "text": text}[what](path)), flush=True)
"""
"""What answers there: it leaves no file, and imports nothing once the machine is cleaned."""


class RemoteTree:
    """The files of a machine that is on: Tree."""

    def __init__(self, ask: Callable[[str], str]) -> None:
        self._ask = ask

    def node(self, path: str) -> Node | None:
        """Return what lies there; None where nothing does."""
        found = self._told("node", path)
        return None if found is None else Node(*found)

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds, sorted; nothing where there is none."""
        return tuple(self._told("names", path))

    def text(self, path: str) -> str:
        """Return what a file holds; empty where there is none."""
        return str(self._told("text", path))

    def _told(self, what: str, path: str) -> Any:  # noqa: ANN401 - JSON of three kinds
        answer = self._ask(json.dumps([what, path]))
        try:
            return json.loads(answer)
        except ValueError:
            raise SourceUnreachable(
                f"asked for {path}, the machine answers {answer[:60]!r}: does the shell of its "
                "root print something?"
            ) from None


@contextmanager
def open_tree(ssh: Ssh) -> Iterator[RemoteTree]:
    """Yield the files of a machine; they can be read even when nobody may enter it any more."""
    with ssh.conversation(f"exec python3 -I -c {quote(_READER)}") as ask:
        tree = RemoteTree(ask)
        # Until it answers, who looks may not be inside yet.
        tree.node("/")
        yield tree
