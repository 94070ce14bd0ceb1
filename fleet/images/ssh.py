"""This module runs commands on a machine by the OpenSSH client.

The machine is new, so nobody knows its host key: the first connection takes it, into a file of
its own, and every later one must meet the same.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.keys import KeyPair

SILENCE = 30 * 60
"""Seconds: a machine may take as long over the checksum of a disk."""
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

    def __init__(
        self, host: str, pair: KeyPair, door: Door | None = None, silence: float = SILENCE
    ) -> None:
        """Give up a script that takes nothing and says nothing for that many seconds."""
        self.host = host
        self.pair = pair
        self.door = door or Door()
        self._silence = silence

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
        with ThreadPoolExecutor(1) as sender, self._running(script) as talk:
            # What it says is read meanwhile: it may wait for that before it reads on.
            sending = sender.submit(talk.send, sent)
            for line in talk.lines():
                yield line.decode(errors="replace")
            sending.result()

    @contextmanager
    def conversation(self, script: str) -> Iterator[Callable[[str], str]]:
        """Run a script that answers every line with one, and yield what asks it.

        It goes on when nobody may enter the machine any more. Raises as `lines` does, and
        SourceUnreachable where the script ends before it was told to.
        """

        def ask(line: str) -> str:
            try:
                talk.stdin.write(f"{line}\n".encode())
                talk.stdin.flush()
            except BrokenPipeError:
                raise EOFError from None
            if not (answer := next(talk.lines(), b"")):
                raise EOFError
            return answer.decode(errors="replace")

        with self._running(script) as talk:
            yield ask
            talk.stdin.close()

    @contextmanager
    def _running(self, script: str) -> Iterator["_Talk"]:
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
        talk = _Talk(process)
        early = False
        with process, talk.bounded(self._silence):
            try:
                yield talk
            except EOFError:
                early = True
            except BaseException:
                process.kill()
                raise
            finally:
                process.wait()
                with suppress(BrokenPipeError):  # what it was not given any more
                    talk.stdin.close()
        if talk.is_late:
            raise SourceUnreachable(
                f"ssh to {self.host}: for {self._silence:g} s it took nothing and said nothing"
            )
        self._judge(process.returncode, b"".join(talk.complaints).decode(errors="replace"))
        if early:
            raise SourceUnreachable(f"ssh to {self.host}: it ended in the middle")

    def _judge(self, status: int, said: str) -> None:
        lines = [line for line in said.splitlines() if "Permanently added" not in line]
        last = lines[-1] if lines else "it says nothing"
        if status == _CONNECTION_LOST:
            raise SourceUnreachable(f"ssh to {self.host}: {last}")
        if status:
            raise PublicationRefused(f"on {self.host} a command failed ({status}): {last}")


class _Talk:
    """What is said to a script and by it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        if not (process.stdin and process.stdout and process.stderr):
            raise TypeError(process)
        self._process = process
        self.stdin, self._stdout, self._stderr = process.stdin, process.stdout, process.stderr
        self.complaints: list[bytes] = []
        self.is_late = False
        self._last = time.monotonic()

    def send(self, sent: Iterable[bytes]) -> None:
        """Give it all of that; what `sent` raises ends it."""
        try:
            # Who does not listen any more says why by its status.
            with suppress(BrokenPipeError):
                for piece in sent:
                    self.stdin.write(piece)
                    self._last = time.monotonic()
                self.stdin.close()
        except BaseException:
            self._process.kill()
            raise

    def lines(self) -> Iterator[bytes]:
        """Yield each line that it says."""
        for line in self._stdout:
            self._last = time.monotonic()
            yield line

    @contextmanager
    def bounded(self, silence: float) -> Iterator[None]:
        """Hear its complaints meanwhile, and end it where neither side has said anything."""
        is_over = threading.Event()

        def watch() -> None:
            while not is_over.wait(max(0.0, self._last + silence - time.monotonic())):
                if time.monotonic() >= self._last + silence:
                    self.is_late = True
                    self._process.kill()
                    return

        with ThreadPoolExecutor(2) as others:
            others.submit(self.complaints.extend, self._stderr)
            others.submit(watch)
            try:
                yield
            finally:
                is_over.set()
