"""This module runs commands on a machine by the OpenSSH client.

The machine is new, so nobody knows its host key: the first connection takes it, into a file of
its own, and every later one must meet the same.
"""

import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.keys import KeyPair

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
        with self._running(script) as (stdin, stdout):
            _send(stdin, sent)
            for line in stdout:
                yield line.decode(errors="replace")

    @contextmanager
    def conversation(self, script: str) -> Iterator[Callable[[str], str]]:
        """Run a script that answers every line with one, and yield what asks it.

        It goes on when nobody may enter the machine any more. Raises as `lines` does, and
        SourceUnreachable where the script ends before it was told to.
        """

        def ask(line: str) -> str:
            try:
                stdin.write(f"{line}\n".encode())
                stdin.flush()
            except BrokenPipeError:
                raise EOFError from None
            if not (answer := stdout.readline()):
                raise EOFError
            return answer.decode(errors="replace")

        with self._running(script) as (stdin, stdout):
            yield ask
            stdin.close()

    @contextmanager
    def _running(self, script: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Run a script as long as the block lasts, and judge how it ended; EOFError: too early."""
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
        early = False
        with process:
            assert process.stdin  # noqa: S101 - they are pipes
            assert process.stdout  # noqa: S101 - same
            assert process.stderr  # noqa: S101 - same
            listener = threading.Thread(target=_listen, args=(process.stderr, said))
            listener.start()
            try:
                yield process.stdin, process.stdout
            except EOFError:
                early = True
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
                listener.join()
        self._judge(process.returncode, b"".join(said).decode(errors="replace"))
        if early:
            raise SourceUnreachable(f"ssh to {self.host}: it ended in the middle")

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
