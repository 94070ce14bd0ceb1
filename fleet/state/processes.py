"""Run other programs: a command with limits, or a process that outlives fleet.

A process is known by its number, when it began and in which run of the computer: a number that
was given to another process since is not taken for it.
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
_SHORTEST = 4
"""A value shorter than this is no secret, and masking it would garble what is said."""
_LONG = r"[^\s\"']{16,}"


def mask(text: str, secrets: Collection[str]) -> str:
    """Return a text without these secrets: in clear, URL-encoded, or in base64."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, _MASK)
    return text


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    data = secret.encode()
    # What base64 makes of it depends on where it stands in what is encoded.
    for before, first in enumerate((0, 2, 3)):
        encoded = base64.b64encode(bytes(before) + data).decode()
        core = encoded[first : (before + len(data)) * 8 // 6]
        if len(core) >= _SHORTEST:
            yield core
            yield core.replace("+", "-").replace("/", "_")


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text that are long enough to be tokens."""
    return frozenset(re.findall(_LONG, text))


@contextmanager
def later_interrupts() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM only after what is done in here.

    In a database's own code, or while a process starts, an interrupt would leave a connection or
    a process behind.
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
"""Seconds that a process has to end when asked to; a worker without work needs less than one."""
_KILLS, _KILL_SECONDS = 100, 0.05
_BOOT = Path("/proc/sys/kernel/random/boot_id")
# The process records itself before it releases the lock, its standard input: the next holder
# finds either a recorded process or none, also when fleet is killed meanwhile.
_START = """
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
    """A process, surely the same: its number, when it began, and since when the computer runs."""

    pid: int
    began: int
    boot: str


class _Stat(NamedTuple):
    state: str
    parent: int
    session: int
    began: int


class Launch(NamedTuple):
    """What is started: where it is recorded, after how many seconds, with which environment."""

    folder: Path
    home: Path
    command: Sequence[str]
    environment: Mapping[str, str]
    delay: int = 0


def start(launch: Launch, lock: IO[str]) -> None:
    """Start a command in a session of its own; OSError where it could not be.

    It is recorded in the folder when the lock, held by the caller, is free again.
    """
    record, delay = str(launch.folder / RECORD), str(launch.delay)
    with (launch.folder / LOG).open("ab") as log:
        subprocess.run(  # noqa: S603 - the operator's own command
            ["setsid", "--fork", "sh", "-c", _START, "sh", record, delay, *launch.command],  # noqa: S607 - those of PATH
            stdin=lock,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=launch.home,
            env=dict(launch.environment),
            check=True,
        )


def find(folder: Path) -> Process | None:
    """Return the process that was started in a folder; None where none was."""
    try:
        boot, stat = (folder / RECORD).read_text(encoding="utf-8").splitlines()
        return Process(int(stat.split()[0]), _parse(stat).began, boot)
    except (FileNotFoundError, ValueError, IndexError):
        return None


def identify(pid: int) -> Process | None:
    """Return the process that has a number now; None when it has ended."""
    stat = _stat_of(pid)
    return Process(pid, stat.began, _boot()) if stat else None


def is_alive(process: Process) -> bool:
    """Say whether a process runs, it and no other of its number."""
    stat = _stat_of(process.pid)
    return stat is not None and (stat.began, _boot()) == (process.began, process.boot)


def end(process: Process, grace: float = GRACE) -> None:
    """End a process and all that it started: asked first, then killed."""
    known = _family(process)
    _signal(known, signal.SIGTERM, grace)
    # What a process starts while it is asked to end is known only afterwards.
    for _ in range(2):
        known = _living(known) | _family(process)
        if not known:
            return
        _signal(known, signal.SIGKILL, grace)
    left = _living(known)
    if left:
        raise SourceUnreachable(f"process {', '.join(map(str, left))} does not end")


def marked(mark: str) -> list[int]:
    """Return the processes with a text in their environment: all that something started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def kill_marked(mark: str) -> None:
    """Kill all processes with a text in their environment, but for one that no signal ends."""
    pause = threading.Event()
    # Again, for one may have been started while we looked.
    for _ in range(_KILLS):
        pids = marked(mark)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not pids:
            return
        pause.wait(_KILL_SECONDS)


def _living(processes: Mapping[int, int]) -> dict[int, int]:
    """Return those that still run: their numbers to their begins."""
    return {
        pid: began
        for pid, began in processes.items()
        if (stat := _stat_of(pid)) and stat.began == began
    }


def _family(process: Process) -> dict[int, int]:
    """Return what a process started that still runs, itself included: its number to its begin.

    Children may have a session of their own, and the children of an ended one another parent.
    """
    stats = _all_stats() if process.boot == _boot() else {}
    leader = stats.get(process.pid)
    if leader is not None and leader.began != process.began:
        return {}  # the number was given away, which is done only when its session is empty
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
    """Send a signal to those that still run, and wait until they have ended or time is up."""
    with ExitStack() as stack:
        poll = select.poll()
        waiting = set()
        for pid, began in processes.items():
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            stack.callback(os.close, handle)
            # Only now can the number not be given to another process any more.
            if (stat := _stat_of(pid)) is None or stat.began != began:
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


def _all_stats() -> dict[int, _Stat]:
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return {pid: stat for pid in pids if (stat := _stat_of(pid))}


def _stat_of(pid: int) -> _Stat | None:
    """Return what the kernel says of a process; None when it has ended."""
    try:
        stat = _parse(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.state in "ZX" else stat


def _parse(line: str) -> _Stat:
    # The name of the program, in brackets, may hold anything.
    fields = line.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def _boot() -> str:
    return _BOOT.read_text(encoding="utf-8").strip()


COMMAND_GRACE = 1.0
"""Seconds that a command has to clean up when its time is over."""
_KEPT = 4096
_CHUNK = 65536
_PIPE = 1 << 20
"""What Linux lets a pipe hold at most."""
_LINES = 3
_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Call:
    """A command, where it runs, and what it gets: it may hang, flood, or print secrets.

    It gets no more of our environment than it is given, and no more of our time and memory. Any
    exit status but 0 is a failure, told with the last it wrote to standard error, masked.
    """

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
        first_line: str = "",
    ) -> None:
        super().__init__(message)
        self.started = started
        """False: it never ran, so that it surely did nothing."""
        self.in_time = in_time
        """False: it was ended before it was done, so that its provider may still be at it."""
        self.prints = prints
        """Of one that ended with a status: whether it printed anything, and complained."""
        self.first_line = first_line
        """The first line that it printed; it may hold secrets, so it is compared and not shown."""


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
            first_line=bytes(said.out).partition(b"\n")[0].decode(errors="replace").strip(),
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
        # A folder of PATH that may not be read answers for a program that is nowhere.
        lacks = isinstance(error, FileNotFoundError | PermissionError)
        reason += "; is it installed, executable and on PATH?" * lacks
        raise CommandFailed(
            f"{call.what}: {call.command[0]} cannot be started: {reason}", started=False
        ) from error


def _end(process: subprocess.Popen[bytes], known: Process | None) -> None:
    with process:
        if known is not None:
            end(known, COMMAND_GRACE)


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
    """Write what a pipe takes and return what is left; the reader may stop reading."""
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
