"""Connect to a temporary machine over ssh: create a key, write its disk, read its files.

The host key of a new machine is unknown. The first connection stores it in a separate file, and
later connections must match it. All commands share one connection of the system's ssh
(ControlMaster), so that they work even after the machine has disabled logins.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from fleet.clouds.pieces import Pieces
from fleet.errors import PublicationRefused, SourceUnreachable
from fleet.model.images import Tell


@dataclass(frozen=True)
class KeyPair:
    """An ssh key pair for one machine. `folder` also has the socket of the connection."""

    folder: Path
    private: Path
    known_hosts: Path
    """File that gets the machine's host key."""
    public: str
    """The public key, as one line."""


@contextmanager
def new_key(holder: str, comment: str) -> Iterator[KeyPair]:
    """Yield a new key, and delete it afterwards. First delete a leftover key of `holder`."""
    folder = Path(tempfile.gettempdir(), f"fleet-ssh-{holder}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        made = _run(
            *("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", "key"),
            cwd=folder,
        )
        if made.returncode:
            raise PublicationRefused(f"ssh-keygen made no key: {made.stderr.decode()}")
        public = (folder / "key.pub").read_text(encoding="utf-8").strip()
        yield KeyPair(folder, folder / "key", folder / "known_hosts", public)
    finally:
        with suppress(PublicationRefused):
            _run("ssh", "-O", "exit", f"-oControlPath={_SOCKET}", "machine", cwd=folder)
        shutil.rmtree(folder)


LIMIT = 3600
"""Time limit of one command in seconds; a full system upgrade takes some minutes."""
_CONNECTION_LOST = 255
_SOCKET = "connection"
"""Socket of the shared connection, in the key's folder. An absolute path may be too long."""
_OPTIONS = (
    *("IdentitiesOnly=yes", "BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10"),
    *("ServerAliveCountMax=3", "StrictHostKeyChecking=accept-new"),
    *("GlobalKnownHostsFile=/dev/null", "ControlMaster=auto", f"ControlPath={_SOCKET}"),
    "ControlPersist=600",
)


def _run(
    *command: str, cwd: Path, sent: bytes = b"", log: Path | None = None, limit: float = LIMIT
) -> "subprocess.CompletedProcess[bytes]":
    """Run a program until it ends, with the last line of its errors as `stderr`.

    Append its output to the log, if there is one.
    """
    # Use files, since the process of the shared connection would keep pipes open.
    with (
        log.open("ab") if log else tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as complaints,
    ):
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, no shell on this side
                command,
                cwd=cwd,
                input=sent,
                stdout=output,
                stderr=complaints,
                env=_environment(),
                check=False,
                timeout=limit,
                start_new_session=True,  # fleet handles Ctrl-C itself
            )
        except FileNotFoundError:
            raise PublicationRefused(
                "this needs ssh-keygen and ssh, which are not here; install openssh-client"
            ) from None
        complaints.seek(0)
        kept = [line for line in complaints if b"Permanently added" not in line]
        done.stderr = kept[-1].strip() if kept else b"it says nothing"
        output.seek(0)
        done.stdout = b"" if log else output.read()
        return done


def _environment() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


class Ssh:
    """A machine that is reached over ssh. `limit` is the time limit of one script in seconds."""

    def __init__(
        self,
        host: str,
        pair: KeyPair,
        *,
        user: str = "root",
        port: int = 22,
        limit: float = LIMIT,
    ) -> None:
        self.host = host
        self.pair = pair
        self.port = port
        self._user = user
        self._limit = limit

    def command(self, script: str) -> list[str]:
        """Return the command line that runs a shell script on the machine."""
        options = (*_OPTIONS, f"UserKnownHostsFile={self.pair.known_hosts}")
        return [
            *("ssh", "-F", "/dev/null", "-C", *(f"-o{option}" for option in options)),
            *("-i", str(self.pair.private), "-p", str(self.port)),
            *(f"{self._user}@{self.host}", script),
        ]

    def wait(self, pause: Callable[[float], None], tries: int) -> None:
        """Wait until the machine accepts ssh; raises SourceUnreachable after `tries` attempts."""
        for attempt in range(tries):
            try:
                self.run("true")
            except SourceUnreachable:
                if attempt == tries - 1:
                    raise
                pause(5)
            else:
                return

    def start(self, script: str, log: Path) -> "subprocess.Popen[bytes]":
        """Start a script with pipes to its input and output. Its error output is logged."""
        with log.open("ab") as errors:
            return subprocess.Popen(  # noqa: S603 - a fixed program, no shell on this side
                self.command(script),
                cwd=self.pair.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_environment(),
                start_new_session=True,
            )

    def run(self, script: str, sent: bytes = b"", log: Path | None = None) -> str:
        """Run a script with an input. Return the output, or append it to the log if there is one.

        Raises SourceUnreachable if the connection is lost or the script exceeds its time limit.
        Raises PublicationRefused if the script fails.
        """
        command, folder = self.command(script), self.pair.folder
        try:
            done = _run(*command, cwd=folder, sent=sent, log=log, limit=self._limit)
        except subprocess.TimeoutExpired:
            raise SourceUnreachable(
                f"ssh to {self.host}: a command did not end within {self._limit:g} s"
            ) from None
        said = done.stderr.decode(errors="replace")
        if done.returncode == _CONNECTION_LOST:
            raise SourceUnreachable(f"ssh to {self.host}: {said}")
        if done.returncode:
            raise PublicationRefused(
                f"on {self.host} a command failed ({done.returncode}): {said}"
            )
        return done.stdout.decode(errors="replace")


_MAX_ATTEMPTS = 5


def write_disk(  # noqa: PLR0913 - as tests write to a file
    ssh: Ssh,
    raw: Path,
    tell: Tell,
    *,
    device: str = "/dev/sda",
    piece_mib: int = 64,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Write a disk image to a remote device, and read the whole device back.

    One command writes or reads a piece. Pieces of 256 MiB took 22 s on loopback, as in one stream;
    pieces of 16 MiB took 45 s. After a lost connection, only differing pieces are sent again.
    """
    to, disk = quote(device), Pieces(raw, piece_mib << 20, tell)

    def send(number: int) -> None:
        ssh.run(
            f"dd of={to} bs=1M seek={number * piece_mib} iflag=fullblock conv=notrunc,fsync "
            "2>/dev/null",
            disk.read(number),
        )

    def is_right(number: int) -> bool:
        theirs = ssh.run(
            f"dd if={to} bs=1M count={piece_mib} skip={number * piece_mib} 2>/dev/null "
            f"| head -c {disk.length(number)} | sha256sum"
        )
        return theirs[:64] == disk.sums[number].hex()

    def find_wrong(tell: Tell) -> list[int]:
        # Flush the device's caches, to compare the content of the device itself.
        ssh.run(f"sync; blockdev --flushbufs {to} 2>/dev/null || true")
        compared = disk.map("read back", [*disk.sums], is_right, tell)
        return [number for number, right in compared if not right]

    wrong = [*disk.sums]
    # Discard old blocks if the device can; otherwise the snapshot contains their old content.
    ssh.run(f"if [ -b {to} ]; then blkdiscard -f {to} 2>/dev/null || true; fi")
    for attempt in range(_MAX_ATTEMPTS):
        try:
            if attempt:
                wrong = find_wrong(lambda _: None)
            deque(disk.map("upload", wrong, send, tell), maxlen=0)
            if not (wrong := find_wrong(tell)):
                return
            lost = SourceUnreachable(
                f"{len(wrong)} of {len(disk.sums)} pieces on {device} of {ssh.host} are not what "
                "was sent"
            )
        except SourceUnreachable as error:
            lost = error
        pause(2**attempt)
    raise SourceUnreachable(f"{lost} (the last of {_MAX_ATTEMPTS} tries)") from lost
