"""Run other programs: a command with limits, or a process that outlives fleet.

A process is identified by its id, start time and boot id, so that a reused id does not match.
"""

import base64
import os
import re
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

from fleet.errors import SourceUnreachable
from fleet.schema.units import write_duration

_MASK = "***"
_MIN_SECRET_LENGTH = 4
"""Minimum characters of a masked secret. Masking shorter values would garble messages."""
_LONG_WORD = r"[^\s\"']{16,}"


def mask(text: str, secrets: Collection[str]) -> str:
    """Replace each secret in a text by ***, in plain, URL-encoded and base64 form."""
    forms = {
        form
        for secret in secrets
        if len(secret) >= _MIN_SECRET_LENGTH
        for form in _encodings(secret)
    }
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _MASK)
    return text


def _encodings(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    data = secret.encode()
    # The base64 form of a secret depends on its offset in the encoded text.
    for before, first in enumerate((0, 2, 3)):
        encoded = base64.b64encode(bytes(before) + data).decode()
        core = encoded[first : (before + len(data)) * 8 // 6]
        if len(core) >= _MIN_SECRET_LENGTH:
            yield core
            yield core.replace("+", "-").replace("/", "_")


def find_tokens(text: str) -> frozenset[str]:
    """Return the words of a text that are long enough to be secret tokens."""
    return frozenset(re.findall(_LONG_WORD, text))


@contextmanager
def later_interrupts() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the body ends.

    Without the delay, an interrupt in a database driver, or while a process starts, would leave a
    connection or process behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    waiting: list[int] = []
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        for each, handler in handlers.items():
            if callable(handler):
                signal.signal(each, lambda number, _: waiting.append(number))
        yield
    finally:
        for each, handler in handlers.items():
            if callable(handler):
                signal.signal(each, handler)
        for number in waiting:
            signal.raise_signal(number)


RECORD = "process"
LOG = "log"
GRACE = 5.0
"""Seconds from SIGTERM to SIGKILL. An idle worker needs less than one second to end."""
_MAX_KILL_ROUNDS = 100
_KILL_SECONDS = 0.05
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
# The process records itself before it releases the lock, its standard input. So the next holder
# of the lock finds a recorded process or no process, even if fleet is killed in between.
_START_SCRIPT = """
set -e
umask 077
record=$1 delay=$2
shift 2
read -r boot < /proc/sys/kernel/random/boot_id
read -r stat < "/proc/$$/stat"
printf '%s\\n%s\\n' "$boot" "$stat" > "$record"
exec < /dev/null
umask 022
if [ "$delay" != 0 ]; then sleep "$delay"; fi
exec "$@"
"""


class Process(NamedTuple):
    """A process, identified by id, start time (in clock ticks) and boot id."""

    pid: int
    began: int
    boot: str


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    began: int


class Launch(NamedTuple):
    """A command to start, with its folders and environment, and a delay in seconds."""

    folder: Path
    home: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    delay: int = 0


def start(launch: Launch, lock: IO[str]) -> None:
    """Start a command in a new session; raises OSError if it cannot be started.

    The caller holds the lock. Before the lock is released, the process is recorded in the folder.
    """
    record, delay = str(launch.folder / RECORD), str(launch.delay)
    with (launch.folder / LOG).open("ab") as log:
        subprocess.run(  # noqa: S603 - the operator's own command
            ["setsid", "--fork", "sh", "-c", _START_SCRIPT, "sh", record, delay, *launch.command],  # noqa: S607 - those of PATH
            stdin=lock,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=launch.home,
            env=dict(launch.environment),
            check=True,
        )


def find(folder: Path) -> Process | None:
    """Return the process recorded in a folder; None if no process is recorded."""
    try:
        boot, stat = (folder / RECORD).read_text(encoding="utf-8").splitlines()
        return Process(int(stat.split()[0]), _parse_stat(stat).began, boot)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def identify(pid: int) -> Process | None:
    """Return the running process with this id; None if there is no such process."""
    stat = _read_stat(pid)
    return Process(pid, stat.began, _read_boot_id()) if stat else None


def is_alive(process: Process) -> bool:
    """Return whether a process still runs. Another process with the same id does not count."""
    stat = _read_stat(process.pid)
    return stat is not None and (stat.began, _read_boot_id()) == (process.began, process.boot)


def end(process: Process, grace: float = GRACE) -> None:
    """Send SIGTERM to a process and its descendants, and after `grace` seconds SIGKILL."""
    known = _descendants(process)
    _signal(known, signal.SIGTERM, grace)
    # A process may start another one while it terminates.
    for _ in range(2):
        known = _still_running(known) | _descendants(process)
        if not known:
            return
        _signal(known, signal.SIGKILL, grace)
    left = _still_running(known)
    if left:
        raise SourceUnreachable(f"process {', '.join(map(str, left))} does not end")


def marked(mark: str) -> list[int]:
    """Return the ids of all processes whose environment contains this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kill_by_environment(mark: str) -> None:
    """Kill all processes whose environment contains this text. Give up after some rounds."""
    pause = threading.Event()
    # A killed process may have started another one meanwhile.
    for _ in range(_MAX_KILL_ROUNDS):
        pids = marked(mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        pause.wait(_KILL_SECONDS)


def _still_running(processes: Mapping[int, int]) -> dict[int, int]:
    """Select the processes that still run, in a map of process id to start time."""
    return {
        pid: began
        for pid, began in processes.items()
        if (stat := _read_stat(pid)) and stat.began == began
    }


def _descendants(process: Process) -> dict[int, int]:
    """Map the ids of a process and its running descendants to their start times.

    A child may have its own session; the child of an ended process has another parent.
    """
    is_same_boot = process.boot == _read_boot_id()
    names = [each.name for each in Path("/proc").iterdir()] if is_same_boot else []
    pids = [int(name) for name in names if name.isdecimal()]
    stats = {pid: stat for pid in pids if (stat := _read_stat(pid))}
    leader = stats.get(process.pid)
    if leader is not None and leader.began != process.began:
        return {}  # another process reuses the id, so the kernel knows that the session is empty
    family = {pid for pid, stat in stats.items() if stat.session == process.pid}
    children: dict[int, set[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, set()).add(pid)
    new = family
    while new:
        new = set().union(*(children.get(pid, set()) for pid in new)) - family
        family |= new
    return {pid: stats[pid].began for pid in family}


def _signal(processes: Mapping[int, int], number: signal.Signals, seconds: float) -> None:
    """Send a signal to those processes that still run, and wait up to `seconds` for their end."""
    with ExitStack() as stack:
        poll = select.poll()
        waiting = set()
        for pid, began in processes.items():
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, handle)
            # The handle fixes the process: compare its start time only after opening the handle.
            if (stat := _read_stat(pid)) is None or stat.began != began:
                continue
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            poll.register(handle, select.POLLIN)
            waiting.add(handle)
        until = time.monotonic() + seconds
        while waiting and (left := until - time.monotonic()) > 0:
            for handle, _ in poll.poll(left * 1000):
                poll.unregister(handle)
                waiting.discard(handle)


def _read_stat(pid: int) -> _Stat | None:
    """Return the status of a process in /proc; None if the process has ended."""
    try:
        stat = _parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.state in "ZX" else stat


def _parse_stat(line: str) -> _Stat:
    # The program's name, in brackets, may contain brackets and spaces.
    fields = line.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def _read_boot_id() -> str:
    return _BOOT_ID_FILE.read_text(encoding="utf-8").strip()


COMMAND_GRACE = 1.0
"""Seconds between SIGTERM and SIGKILL for a command after its time limit."""
_MAX_STDERR_BYTES = 4096
_CHUNK_BYTES = 65536
_PIPE_BYTES = 1 << 20
"""Maximum bytes in a pipe on Linux."""
_STDERR_LINES = 3
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Invocation:
    """A command to run, with its folder, environment and limits.

    The command may hang, print too much, or print secrets. Its environment, time and memory are
    limited. An exit status other than 0 is a failure; the error message has the last lines of
    standard error, with secrets masked.
    """

    what: str
    """Name of the command in messages."""
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    timeout: float
    secrets: Collection[str] = field(default=(), repr=False)
    """Values that messages mask in any encoding."""
    stdin: str = field(default="", repr=False)
    most: int = _CHUNK_BYTES
    """Maximum bytes of standard output."""
    advice: str = ""
    """Text at the end of the message about an exceeded time limit."""
    shows: bool = True
    """Whether messages include the last lines of standard error."""
    keeps: tuple[int, ...] = ()
    """File descriptors that the command inherits from fleet."""
    hears: Callable[[str, bytes], None] = field(default=lambda _stream, _data: None, repr=False)
    """Receives each part of the output with the stream's name. The output may contain secrets."""
    is_cut: Callable[[], bool] = field(default=lambda: False, repr=False)
    """Checked repeatedly while the command runs. The result True stops the command."""


class CommandFailed(SourceUnreachable):
    """A command failed or could not be started."""

    def __init__(
        self,
        message: str,
        *,
        started: bool = True,
        in_time: bool = True,
        prints: tuple[bool, bool] | None = None,
        first_line: str = "",
    ) -> None:
        super().__init__(message)
        self.started = started
        """Whether the command was started. Otherwise it had no effect."""
        self.in_time = in_time
        """False if the command was stopped early. A provider may still carry out its request."""
        self.prints = prints
        """Whether the command wrote to standard output and to standard error; None if unknown."""
        self.first_line = first_line
        """First line of the output. It may contain secrets: compare it, but do not show it."""


def run(call: Invocation) -> str:
    """Run a command and return its standard output; raises CommandFailed if it fails."""
    if call.is_cut():
        raise CommandFailed(f"{call.what} is not started: fleet is stopping", started=False)
    said = _Output(call)
    process = known = None
    try:
        with later_interrupts():
            process = _start_process(call)
            known = identify(process.pid)
        _communicate(process, call, said)
    except BaseException:
        if process is not None:
            with process:
                if known is not None:
                    end(known, COMMAND_GRACE)
        raise
    with process:
        pass
    status = process.returncode
    if status != 0:
        ending = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        raise CommandFailed(
            f"{call.what} {ending}{said.last()}",
            prints=None if status < 0 else said.prints(),
            first_line=bytes(said.out).partition(b"\n")[0].decode(errors="replace").strip(),
        )
    try:
        return said.out.decode()
    except UnicodeDecodeError:
        raise CommandFailed(f"{call.what} printed text that is not UTF-8") from None


def _start_process(call: Invocation) -> subprocess.Popen[bytes]:
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
        # An unreadable folder in PATH causes the same error as a missing program.
        lacks = isinstance(error, FileNotFoundError | PermissionError)
        reason += "; is it installed, executable and on PATH?" * lacks
        raise CommandFailed(
            f"{call.what}: {call.command[0]} cannot be started: {reason}", started=False
        ) from error


class _Output:
    """The output of a running command: all of standard output, and the end of standard error."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self.out = bytearray()
        self._error = bytearray()
        self._is_cut = False

    def hear(self, stream: str, data: bytes) -> None:
        """Add a part of the output; raises CommandFailed if the output is too long."""
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
        if len(self._error) > _MAX_STDERR_BYTES:
            self._is_cut = True
            del self._error[:-_MAX_STDERR_BYTES]

    def prints(self) -> tuple[bool, bool]:
        """Return whether the command wrote to standard output, and to standard error."""
        return bool(self.out.strip()), bool(self._error.strip())

    def last(self) -> str:
        """Return the last lines of standard error, with secrets masked."""
        error = bytes(self._error) if self._call.shows else b""
        if self._is_cut:
            # A secret that was cut off would not be masked: drop the first line.
            error = error.partition(b"\n")[2]
        text = mask(error.decode(errors="replace"), self._call.secrets)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {' | '.join(lines[-_STDERR_LINES:])}" if lines else ""


def _communicate(process: subprocess.Popen[bytes], call: Invocation, said: _Output) -> None:
    """Write the input of a command and read its output until it ends; raises CommandFailed."""
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
            for key, _ in selector.select(min(seconds, _POLL_SECONDS)):
                if key.data == "stdin":
                    left = _write_pipe(selector, process.stdin, left)
                elif key.data != "end":
                    _read_pipe(selector, key, said)
                else:
                    # A child may keep the pipe open: read only the bytes that are already in it.
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


def _write_pipe(
    selector: selectors.BaseSelector, pipe: IO[bytes] | None, left: memoryview
) -> memoryview:
    """Write a part of the input; return the rest, which is empty if the reader closed the pipe."""
    if pipe is None:
        return left
    try:
        left = left[os.write(pipe.fileno(), left[:_CHUNK_BYTES]) :] if left else left
    except BlockingIOError:
        return left
    except BrokenPipeError:
        left = left[:0]
    if not left:
        selector.unregister(pipe)
        with suppress(BrokenPipeError):
            pipe.close()
    return left


def _read_pipe(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, said: _Output
) -> bool:
    """Read from a pipe once. Return False if the pipe is empty or closed."""
    try:
        data = os.read(key.fd, _CHUNK_BYTES)
    except BlockingIOError:
        return False
    if not data:
        selector.unregister(key.fileobj)
        return False
    said.hear(key.data, data)
    return True


def _drain(selector: selectors.BaseSelector, key: selectors.SelectorKey, said: _Output) -> None:
    """Read the bytes in a pipe, at most its capacity, because another process may still write."""
    for _ in range(_PIPE_BYTES // _CHUNK_BYTES):
        if not _read_pipe(selector, key, said):
            return
