"""Run other programs: a command with limits, or a process that outlives fleet.

A process is identified by its id, start time and boot id, so a reused id is not mistaken for it.
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
"""Minimum characters of a secret; masking a shorter value would garble messages."""
_LONG_WORD = r"[^\s\"']{16,}"


def mask(text: str, secrets: Collection[str]) -> str:
    """Mask secrets in a text: in clear, URL-encoded, or in base64."""
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
    # The base64 form depends on the offset of the secret in the encoded text.
    for before, first in enumerate((0, 2, 3)):
        encoded = base64.b64encode(bytes(before) + data).decode()
        core = encoded[first : (before + len(data)) * 8 // 6]
        if len(core) >= _MIN_SECRET_LENGTH:
            yield core
            yield core.replace("+", "-").replace("/", "_")


def find_tokens(text: str) -> frozenset[str]:
    """Return the words of a text that are long enough to be tokens."""
    return frozenset(re.findall(_LONG_WORD, text))


@contextmanager
def later_interrupts() -> Iterator[None]:
    """Defer SIGINT and SIGTERM until the block ends.

    An interrupt in a database's own code, or while a process starts, would leave a connection or a
    process behind.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
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
"""Seconds for a process to end after SIGTERM; an idle worker needs less than one."""
_MAX_KILL_ROUNDS = 100
_KILL_SECONDS = 0.05
_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
# The process records itself before it releases the lock, its standard input. So the next holder of
# the lock finds either a recorded process or no process, even if fleet is killed meanwhile.
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
    """A process, identified by its id, start time (clock ticks) and boot id."""

    pid: int
    began: int
    boot: str


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    began: int


class Launch(NamedTuple):
    """A command to start, with its folders, environment and delay in seconds."""

    folder: Path
    home: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    delay: int = 0


def start(launch: Launch, lock: IO[str]) -> None:
    """Start a command in its own session; raises OSError if it cannot be started.

    The caller holds the lock. Once it is free again, the process is recorded in the folder.
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
    """Return the process that was started in a folder; None if no process was."""
    try:
        boot, stat = (folder / RECORD).read_text(encoding="utf-8").splitlines()
        return Process(int(stat.split()[0]), _parse_stat(stat).began, boot)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def identify(pid: int) -> Process | None:
    """Return the running process with this id; None if it has ended."""
    stat = _read_stat(pid)
    return Process(pid, stat.began, _read_boot_id()) if stat else None


def is_alive(process: Process) -> bool:
    """Return whether a process still runs; a reused id does not count."""
    stat = _read_stat(process.pid)
    return stat is not None and (stat.began, _read_boot_id()) == (process.began, process.boot)


def end(process: Process, grace: float = GRACE) -> None:
    """Terminate a process and all its descendants, then kill the remaining ones."""
    known = _descendants(process)
    _signal(known, signal.SIGTERM, grace)
    # A process may start others while it terminates.
    for _ in range(2):
        known = _still_running(known) | _descendants(process)
        if not known:
            return
        _signal(known, signal.SIGKILL, grace)
    left = _still_running(known)
    if left:
        raise SourceUnreachable(f"process {', '.join(map(str, left))} does not end")


def marked(mark: str) -> list[int]:
    """Return the ids of processes with a text in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or belongs to another user
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kill_by_environment(mark: str) -> None:
    """Kill all processes with a text in their environment, except one that survives SIGKILL."""
    pause = threading.Event()
    # Repeat, since a new process may have been started meanwhile.
    for _ in range(_MAX_KILL_ROUNDS):
        pids = marked(mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        pause.wait(_KILL_SECONDS)


def _still_running(processes: Mapping[int, int]) -> dict[int, int]:
    """Return the processes that still run, as process id to start time."""
    return {
        pid: began
        for pid, began in processes.items()
        if (stat := _read_stat(pid)) and stat.began == began
    }


def _descendants(process: Process) -> dict[int, int]:
    """Return a process and its running descendants, as process id to start time.

    Children may have their own session, and children of an ended process another parent.
    """
    stats = _read_all_stats() if process.boot == _read_boot_id() else {}
    leader = stats.get(process.pid)
    if leader is not None and leader.began != process.began:
        return {}  # the id was reused, which the kernel does only after its session is empty
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
    """Signal the processes that still run, and wait for them up to a time limit."""
    with ExitStack() as stack:
        poll = select.poll()
        waiting = set()
        for pid, began in processes.items():
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, handle)
            # The handle fixes the process: compare its start time after opening it.
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


def _read_all_stats() -> dict[int, _Stat]:
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return {pid: stat for pid in pids if (stat := _read_stat(pid))}


def _read_stat(pid: int) -> _Stat | None:
    """Return the kernel's status of a process; None if it has ended."""
    try:
        stat = _parse_stat(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.state in "ZX" else stat


def _parse_stat(line: str) -> _Stat:
    # The program's name, in brackets, may contain any character.
    fields = line.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def _read_boot_id() -> str:
    return _BOOT_ID_FILE.read_text(encoding="utf-8").strip()


COMMAND_GRACE = 1.0
"""Seconds for a command to clean up after its time-out."""
_MAX_STDERR_BYTES = 4096
_CHUNK_BYTES = 65536
_PIPE_BYTES = 1 << 20
"""Maximum bytes in a pipe on Linux."""
_STDERR_LINES = 3
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Invocation:
    """A command with its folder, environment and limits: it may hang, flood, or print secrets.

    It gets only this environment, and limited time and memory. Any exit status but 0 is a failure;
    the message has the last lines of standard error, masked.
    """

    what: str
    """Name of the command in messages."""
    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    timeout: float
    secrets: Collection[str] = field(default=(), repr=False)
    """Values that are masked in messages, in any form."""
    stdin: str = field(default="", repr=False)
    most: int = _CHUNK_BYTES
    """Maximum bytes of standard output."""
    advice: str = ""
    """End of the message about a time-out."""
    shows: bool = True
    """Whether messages include the last lines of standard error."""
    keeps: tuple[int, ...] = ()
    """File descriptors that the command inherits."""
    hears: Callable[[str, bytes], None] = field(default=lambda _stream, _data: None, repr=False)
    """Called with each part of `stdout` and `stderr`, which may contain secrets."""
    is_cut: Callable[[], bool] = field(default=lambda: False, repr=False)
    """Whether to stop the command; called repeatedly while it runs."""


class CommandFailed(SourceUnreachable):
    """A command failed."""

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
        """False: it did not run, so it had no effect."""
        self.in_time = in_time
        """False: it was stopped before it finished, so its provider may still act."""
        self.prints = prints
        """If it exited: whether it wrote to standard output, and to standard error."""
        self.first_line = first_line
        """The first line that it printed; it may hold secrets, so compare it but do not show
        it."""


def run(call: Invocation) -> str:
    """Return a command's standard output; raises CommandFailed if it failed."""
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
            _end_process(process, known)
        raise
    with process:
        pass
    if process.returncode != 0:
        raise CommandFailed(
            f"{call.what} {_describe_status(process.returncode)}{said.last()}",
            prints=None if process.returncode < 0 else said.prints(),
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
        # An unreadable folder of PATH gives the same error as a missing program.
        lacks = isinstance(error, FileNotFoundError | PermissionError)
        reason += "; is it installed, executable and on PATH?" * lacks
        raise CommandFailed(
            f"{call.what}: {call.command[0]} cannot be started: {reason}", started=False
        ) from error


def _end_process(process: subprocess.Popen[bytes], known: Process | None) -> None:
    with process:
        if known is not None:
            end(known, COMMAND_GRACE)


class _Output:
    """The output of a command so far: all of stdout, the end of stderr."""

    def __init__(self, call: Invocation) -> None:
        self._call = call
        self.out = bytearray()
        self._error = bytearray()
        self._is_cut = False

    def hear(self, stream: str, data: bytes) -> None:
        """Add a part of the output; raises CommandFailed if it is too long."""
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
        """Return the last lines of standard error, secrets masked."""
        error = bytes(self._error) if self._call.shows else b""
        if self._is_cut:
            # A truncated secret would not be masked.
            error = error.partition(b"\n")[2]
        text = mask(error.decode(errors="replace"), self._call.secrets)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return f": {' | '.join(lines[-_STDERR_LINES:])}" if lines else ""


def _communicate(process: subprocess.Popen[bytes], call: Invocation, said: _Output) -> None:
    """Write a command's input and read its output until it ends."""
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
                    # A child may hold the output open: read only the bytes already in the pipe.
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
    """Write as much as the pipe takes and return the rest; the reader may have stopped."""
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
    """Read from a pipe; False if it is empty or closed."""
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
    """Read the rest of a pipe, up to its capacity, though a process may still write into it."""
    for _ in range(_PIPE_BYTES // _CHUNK_BYTES):
        if not _read_pipe(selector, key, said):
            return


def _describe_status(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
