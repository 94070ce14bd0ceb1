"""This module runs one command of a person's own, which may hang, flood, or say what is secret.

It gets no more of our environment than it is given, and no more of our time and memory. Its
exit status is believed: anything but 0 is a failure, told with the last it wrote to standard
error, secrets masked.
"""

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from fleet.errors import SourceUnreachable
from fleet.schema.units import write_duration
from fleet.state.interrupts import later_interrupts
from fleet.state.masking import mask
from fleet.state.processes import Process, end, identify

GRACE = 1.0
"""Seconds that a command has to clean up when its time is over."""
_KEPT = 4096
_CHUNK = 65536
_PIPE = 1 << 20
"""What Linux lets a pipe hold at most."""
_LINES = 3
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Call:
    """A command, where it runs, and what it gets."""

    what: str
    """How messages call it."""
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    timeout: float
    secrets: Collection[str] = field(default=(), repr=False)
    """What is masked in messages, in whatever form."""
    stdin: str = field(default="", repr=False)
    most: int = _CHUNK
    """Bytes that it may print."""
    advice: str = ""
    """What a message says of one that was ended because it took too long."""
    shows: bool = True
    """Whether messages tell the last of its complaints."""
    keeps: tuple[int, ...] = ()
    """Descriptors that it holds open as long as it runs."""
    hears: Callable[[str, bytes], None] = field(default=lambda _stream, _data: None, repr=False)
    """Takes whatever it writes to `stdout` and `stderr`, as it comes: secrets are in it."""
    is_cut: Callable[[], bool] = field(default=lambda: False, repr=False)
    """Whether it is to end now; asked again and again while it runs."""


class CommandFailed(SourceUnreachable):
    """A command failed."""

    def __init__(
        self,
        message: str,
        *,
        started: bool = True,
        in_time: bool = True,
        prints: tuple[bool, bool] | None = None,
    ) -> None:
        super().__init__(message)
        self.started = started
        """False: it never ran, so that it surely did nothing."""
        self.in_time = in_time
        """False: it was ended before it was done, so that its provider may still be at it."""
        self.prints = prints
        """Of one that ended with a status: whether it printed anything, and complained."""


def run(call: Call) -> str:
    """Return what a command printed; CommandFailed where that cannot be relied on."""
    if call.is_cut():
        raise CommandFailed(f"{call.what} is not started: fleet is stopping", started=False)
    said = _Said(call)
    process = known = None
    try:
        with later_interrupts():
            process = _start(call)
            known = identify(process.pid)
        _talk(process, call, said)
    except BaseException:
        if process is not None:
            _end(process, known)
        raise
    with process:
        pass
    if process.returncode != 0:
        raise CommandFailed(
            f"{call.what} {_ended(process.returncode)}{said.last()}",
            prints=None if process.returncode < 0 else said.prints(),
        )
    try:
        return said.out.decode()
    except UnicodeDecodeError:
        raise CommandFailed(f"{call.what} printed text that is not UTF-8") from None


def _start(call: Call) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - the operator's own command
            call.command,
            cwd=call.folder,
            env=dict(call.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=call.keeps,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "not a command"
        reason += "; is it installed and on PATH?" * isinstance(error, FileNotFoundError)
        raise CommandFailed(
            f"{call.what}: {call.command[0]} cannot be started: {reason}", started=False
        ) from error


def _end(process: subprocess.Popen[bytes], known: Process | None) -> None:
    with process:
        if known is not None:
            end(known, GRACE)


class _Said:
    """What a command has written so far: all of its output, the end of its complaints."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.out = bytearray()
        self._error = bytearray()
        self._is_cut = False

    def hear(self, stream: str, data: bytes) -> None:
        """Take a part of what it wrote; CommandFailed where it is too much."""
        self._call.hears(stream, data)
        if stream == "stdout":
            self.out += data
            if len(self.out) > self._call.most:
                raise CommandFailed(
                    f"{self._call.what} printed more than {self._call.most} bytes and was stopped"
                    f"{self.last()}",
                    in_time=False,
                )
            return
        self._error += data
        if len(self._error) > _KEPT:
            self._is_cut = True
            del self._error[:-_KEPT]

    def prints(self) -> tuple[bool, bool]:
        """Return whether it printed anything, and whether it complained."""
        return bool(self.out.strip()), bool(self._error.strip())

    def last(self) -> str:
        """Return the last lines of its complaints, secrets masked."""
        error = bytes(self._error) if self._call.shows else b""
        if self._is_cut:
            # Half a secret would not be recognised.
            error = error.partition(b"\n")[2]
        text = mask(error.decode(errors="replace"), self._call.secrets)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {' | '.join(lines[-_LINES:])}" if lines else ""


def _talk(process: subprocess.Popen[bytes], call: Call, said: _Said) -> None:
    """Give a command what it is to read, and hear what it says, until it ends."""
    until = time.monotonic() + call.timeout
    with ExitStack() as stack:
        ending = os.pidfd_open(process.pid)
        stack.callback(os.close, ending)
        selector = stack.enter_context(selectors.DefaultSelector())
        selector.register(ending, selectors.EVENT_READ, "end")
        left = memoryview(call.stdin.encode())
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr)):
            _register(selector, pipe, selectors.EVENT_READ, name)
        _register(selector, process.stdin, selectors.EVENT_WRITE, "stdin")
        while (seconds := until - time.monotonic()) > 0:
            if call.is_cut():
                raise CommandFailed(
                    f"{call.what} was stopped with fleet{said.last()}", in_time=False
                )
            for key, _ in selector.select(min(seconds, _LOOK_SECONDS)):
                if key.data == "stdin":
                    left = _write(selector, process.stdin, left)
                elif key.data != "end":
                    _hear(selector, key, said)
                else:
                    # What it started may hold its output open: only what is there is read.
                    pipes = [*selector.get_map().values()]
                    for each in [pipe for pipe in pipes if pipe.data in ("stdout", "stderr")]:
                        _drain(selector, each, said)
                    return
    spent = write_duration(int(call.timeout)) if call.timeout >= 1 else f"{call.timeout:g}s"
    raise CommandFailed(
        f"{call.what} did not finish within {spent} and was stopped{said.last()}{call.advice}",
        in_time=False,
    )


def _register(
    selector: selectors.BaseSelector, pipe: IO[bytes] | None, event: int, name: str
) -> None:
    if pipe is not None:
        os.set_blocking(pipe.fileno(), False)
        selector.register(pipe, event, name)


def _write(
    selector: selectors.BaseSelector, pipe: IO[bytes] | None, left: memoryview
) -> memoryview:
    """Write what a pipe takes and return what is left; whoever does not read need not."""
    if pipe is None:
        return left
    try:
        left = left[os.write(pipe.fileno(), left[:_CHUNK]) :] if left else left
    except BlockingIOError:
        return left
    except BrokenPipeError:
        left = left[:0]
    if not left:
        selector.unregister(pipe)
        with suppress(BrokenPipeError):
            pipe.close()
    return left


def _hear(selector: selectors.BaseSelector, key: selectors.SelectorKey, said: _Said) -> bool:
    """Take what a pipe holds; False when that is nothing for now, or for ever."""
    try:
        data = os.read(key.fd, _CHUNK)
    except BlockingIOError:
        return False
    if not data:
        selector.unregister(key.fileobj)
        return False
    said.hear(key.data, data)
    return True


def _drain(selector: selectors.BaseSelector, key: selectors.SelectorKey, said: _Said) -> None:
    """Take what is left in a pipe, though something may go on writing into it."""
    for _ in range(_PIPE // _CHUNK):
        if not _hear(selector, key, said):
            return


def _ended(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
