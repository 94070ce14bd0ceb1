"""This module runs commands on a machine by the OpenSSH client.

The machine is new, so nobody knows its host key: the first connection takes it, into a file of
its own, and every later one must meet the same.
"""

import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fleet.errors import PublicationRefused, SourceUnreachable

_CONNECTION_LOST = 255
_OPTIONS = (
    "IdentitiesOnly=yes",
    "BatchMode=yes",
    "StrictHostKeyChecking=accept-new",
    "GlobalKnownHostsFile=/dev/null",
    "ConnectTimeout=10",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
)
_ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class Door:
    """How machines are entered."""

    user: str = "root"
    port: int = 22


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
    """Yield a key that nobody else has, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="fleet-ssh-") as folder:
        pair = KeyPair(Path(folder))
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


class Ssh:
    """One machine."""

    def __init__(self, host: str, pair: KeyPair, door: Door | None = None) -> None:
        self.host = host
        self.pair = pair
        self.door = door or Door()

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a script of sh there."""
        options = [*_OPTIONS, f"UserKnownHostsFile={self.pair.folder / 'known_hosts'}"]
        named = [part for option in options for part in ("-o", option)]
        door = ["-i", str(self.pair.private), "-p", str(self.door.port)]
        return [
            "ssh",
            "-F",
            "/dev/null",
            "-C",
            *named,
            *door,
            f"{self.door.user}@{self.host}",
            script,
        ]

    def wait(self, pause: Callable[[float], None], tries: int) -> None:
        """Wait until it lets us in."""
        for attempt in range(tries):
            try:
                self.run("true")
            except SourceUnreachable:
                if attempt == tries - 1:
                    raise
                pause(5)
            else:
                return

    def run(self, script: str, sent: Iterable[bytes] = ()) -> str:
        """Run a script, given these pieces, and return what it says."""
        return "".join(self.lines(script, sent))

    def lines(self, script: str, sent: Iterable[bytes] = ()) -> Iterator[str]:
        """Run a script, given these pieces, and yield each line that it says.

        Raises SourceUnreachable where the connection is lost, PublicationRefused where the script
        fails; what `sent` raises ends both.
        """
        try:
            process = subprocess.Popen(  # noqa: S603 - a fixed program, no shell on this side
                self.command(script),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
                start_new_session=True,  # a Ctrl-C is ours to answer, in order
            )
        except FileNotFoundError:
            raise PublicationRefused(
                "this needs ssh, which is not here; install openssh-client"
            ) from None
        said: list[bytes] = []
        with process:
            assert process.stdin  # noqa: S101 - they are pipes
            assert process.stdout  # noqa: S101 - same
            assert process.stderr  # noqa: S101 - same
            listener = threading.Thread(target=_listen, args=(process.stderr, said))
            listener.start()
            try:
                _send(process.stdin, sent)
                for line in process.stdout:
                    yield line.decode(errors="replace")
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
                listener.join()
        self._judge(process.returncode, b"".join(said).decode(errors="replace"))

    def _judge(self, status: int, said: str) -> None:
        lines = [line for line in said.splitlines() if "Permanently added" not in line]
        last = lines[-1] if lines else "it says nothing"
        if status == _CONNECTION_LOST:
            raise SourceUnreachable(f"ssh to {self.host}: {last}")
        if status:
            raise PublicationRefused(f"on {self.host} a command failed ({status}): {last}")


def _send(stdin: IO[bytes], sent: Iterable[bytes]) -> None:
    # Who does not listen any more says why by its status.
    with suppress(BrokenPipeError):
        for piece in sent:
            stdin.write(piece)
        stdin.close()


def _listen(stderr: IO[bytes], said: list[bytes]) -> None:
    said.extend(stderr)
