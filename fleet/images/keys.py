"""This module makes the keys that open one machine each and exist only as long as it is used.

A killed run cannot remove its own: whoever makes the next does, and knows by a lock, which the
kernel lets go with the process, whether a key is still in use.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import PublicationRefused

_PREFIX = "fleet-ssh-"


@dataclass(frozen=True)
class KeyPair:
    """A key that was made for one machine; `folder` also holds what hosts it met."""

    folder: Path

    @property
    def private(self) -> Path:
        """Return the file of the private key."""
        return self.folder / "key"

    @property
    def public(self) -> str:
        """Return the public key, as one line."""
        return (self.folder / "key.pub").read_text(encoding="utf-8").strip()


@contextmanager
def new_key(comment: str) -> Iterator[KeyPair]:
    """Yield a key that nobody else has, gone afterwards, and with it those of killed runs."""
    _remove_leavings()
    with _folder() as folder:
        pair = KeyPair(folder)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, no shell
                [*command, "-f", str(pair.private)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise PublicationRefused(
                "this needs ssh-keygen and ssh, which are not here; install openssh-client"
            ) from None
        if done.returncode:
            raise PublicationRefused(f"ssh-keygen made no key: {done.stderr.strip()}")
        yield pair


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a new folder that is locked, removed afterwards."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # somebody took it for left in the moment before
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():  # the same, a moment later
                continue
            try:
                yield folder
            finally:
                shutil.rmtree(folder)
            return
        finally:
            os.close(lock)


def _remove_leavings() -> None:
    """Remove the folders of ours that no process has locked any more."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else's, in use, or gone meanwhile
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.geteuid():
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
