"""Open a temporary machine over ssh: a key for it alone, writing its disk, reading its files.

A killed run cannot remove its own: the run that makes the next one does. A lock, which the kernel
releases with the process, shows whether a key is still in use.

The machine is new, so its host key is unknown: the first connection takes it, into a file of
its own, and every later one must meet the same.
"""

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.images.checks import Node
from fleet.images.programs import Tell, Total

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
    """Yield a new key, gone afterwards, and with it those of killed runs."""
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

        It goes on when logins to the machine are closed. Raises as `lines` does, and
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
            raise SourceUnreachable(f"ssh to {self.host}: no data for {self._silence:g} s")
        self._judge(process.returncode, b"".join(talk.complaints).decode(errors="replace"))
        if early:
            raise SourceUnreachable(f"ssh to {self.host}: the connection ended early")

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


_MIB = 1 << 20
_TRIES = 5


@dataclass(frozen=True)
class Writing:
    """How a disk is written."""

    device: str = "/dev/sda"
    piece_mib: int = 16
    """What is sent again after a connection was lost."""
    pause: Callable[[float], None] = time.sleep


def write_disk(ssh: Ssh, raw: Path, tell: Tell, writing: Writing) -> None:
    """Make a device there hold a disk, and read all of it back.

    A connection that is lost is made again, and only pieces that differ are sent again.
    """
    size = raw.stat().st_size
    ours = _ours(raw, writing.piece_mib * _MIB, Total(tell, "prepare", size))
    wrong: Sequence[int] = range(len(ours))
    _empty(ssh, writing.device)
    for attempt in range(_TRIES):
        try:
            if attempt:
                wrong = _differing(ssh, writing, ours, Total(_nobody, "read back", size))
            _send(ssh, raw, writing, wrong, Total(tell, "upload", size))
            wrong = _differing(ssh, writing, ours, Total(tell, "read back", size))
        except SourceUnreachable as error:
            lost = error
        else:
            if not wrong:
                return
            lost = SourceUnreachable(
                f"{len(wrong)} of {len(ours)} pieces on {writing.device} of {ssh.host} are not "
                "what was sent"
            )
        writing.pause(2**attempt)
    raise SourceUnreachable(f"{lost} (the last of {_TRIES} tries)") from lost


def _empty(ssh: Ssh, device: str) -> None:
    """Give back all blocks of a device where it can: else the snapshot holds what was there."""
    named = shlex.quote(device)
    ssh.run(f"if [ -b {named} ]; then blkdiscard -f {named} 2>/dev/null || true; fi")


def _send(ssh: Ssh, raw: Path, writing: Writing, numbers: Sequence[int], total: Total) -> None:
    if not numbers:
        return
    mib = writing.piece_mib
    # Each dd takes its piece of what comes in; only the last piece may be shorter.
    script = (
        f"set -e; for i in {' '.join(map(str, numbers))}; do "
        f"dd of={shlex.quote(writing.device)} bs=1M count={mib} seek=$((i*{mib})) "
        "iflag=fullblock conv=notrunc,fsync 2>/dev/null; done"
    )
    right = total.total - sum(min(mib * _MIB, total.total - i * mib * _MIB) for i in numbers)
    total.move(right)
    ssh.run(script, _pieces(raw, numbers, mib * _MIB, total))


def _pieces(raw: Path, numbers: Sequence[int], size: int, total: Total) -> Iterator[bytes]:
    with raw.open("rb") as file:
        for number in numbers:
            file.seek(number * size)
            left = size
            while left and (part := file.read(min(_MIB, left))):
                yield part
                left -= len(part)
                total.move(len(part))


def _differing(ssh: Ssh, writing: Writing, ours: Sequence[str], total: Total) -> list[int]:
    """Return the numbers of the pieces that are not there as they should be."""
    named, piece_mib = shlex.quote(writing.device), writing.piece_mib
    rest = total.total - (len(ours) - 1) * piece_mib * _MIB
    # Past the caches of that device: what counts is what it gives back.
    script = (
        f"set -e; sync; blockdev --flushbufs {named} 2>/dev/null || true; "
        f"i=0; while [ $i -lt {len(ours)} ]; do n={piece_mib * _MIB}; "
        f"[ $i -lt {len(ours) - 1} ] || n={rest}; "
        f"dd if={named} bs=1M count={piece_mib} skip=$((i*{piece_mib})) 2>/dev/null "
        "| head -c $n | sha256sum; i=$((i+1)); done"
    )
    theirs = []
    for line in ssh.lines(script):
        theirs.append(line[:64])
        total.move(piece_mib * _MIB)
    if len(theirs) != len(ours):
        raise SourceUnreachable(f"{ssh.host} did not read back all of {writing.device}")
    return [number for number, each in enumerate(ours) if theirs[number] != each]


def _ours(raw: Path, size: int, total: Total) -> list[str]:
    sums = []
    with raw.open("rb") as file:
        while piece := file.read(size):
            sums.append(hashlib.sha256(piece).hexdigest())
            total.move(len(piece))
    return sums


def _nobody(_: object) -> None:
    """Hear nothing."""


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
        found = self._answer("node", path)
        return None if found is None else Node(*found)

    def names(self, path: str) -> tuple[str, ...]:
        """Return what a folder holds, sorted; nothing where there is none."""
        return tuple(self._answer("names", path))

    def text(self, path: str) -> str:
        """Return what a file holds; empty where there is none."""
        return str(self._answer("text", path))

    def _answer(self, what: str, path: str) -> Any:  # noqa: ANN401 - JSON of three kinds
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
    """Yield the files of a machine; they can be read even when its logins are closed."""
    with ssh.conversation(f"exec python3 -I -c {quote(_READER)}") as ask:
        tree = RemoteTree(ask)
        # Until it answers, who looks may not be inside yet.
        tree.node("/")
        yield tree
