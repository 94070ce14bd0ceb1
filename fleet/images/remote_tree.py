"""Read the files of a running machine over ssh, to check them like the files of an image."""

from shlex import quote

from fleet.clouds.hcloud.ssh import Ssh
from fleet.errors import SourceUnreachable
from fleet.images.checks import FileNode

_STAT_SCRIPT = """[ -e "$p" ] || [ -L "$p" ] || exit 0
stat -c '%f %u %g %s' "$p"; [ ! -L "$p" ] || readlink -n "$p"
"""
_LIST_SCRIPT = """[ -d "$p" ] || exit 0
find "$p/" -mindepth 1 -maxdepth 1 -printf '%f\\0'
"""
_READ_SCRIPT = """[ -f "$p" ] && [ ! -L "$p" ] && [ "$(stat -c %s "$p")" -le 1048576 ] || exit 0
cat "$p"
"""
"""Script that prints a file of at most 1 MiB, the maximum size of a checked file."""


class RemoteTree:
    """The files of a running machine, with the interface of `Tree`."""

    def __init__(self, ssh: Ssh) -> None:
        self._ssh = ssh

    def node(self, path: str) -> FileNode | None:
        """Return the file, folder or link at a path; None if the path does not exist."""
        answer = self._ask(path, _STAT_SCRIPT)
        if not answer:
            return None
        numbers, _, target = answer.partition("\n")
        try:
            mode, uid, gid, size = numbers.split()
            return FileNode(int(mode, 16), int(uid), int(gid), int(size), target)
        except ValueError:
            raise SourceUnreachable(
                f"asked for {path}, the machine answers {answer[:60]!r}: does the shell of its "
                "root print something?"
            ) from None

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if the folder does not exist."""
        return tuple(sorted(self._ask(path, _LIST_SCRIPT).split("\0")[:-1]))

    def text(self, path: str) -> str:
        """Return the content of a file; empty if the file does not exist or is over 1 MiB."""
        return self._ask(path, _READ_SCRIPT)

    def _ask(self, path: str, script: str) -> str:
        return self._ssh.run(f"p={quote(path)}\n{script}")
