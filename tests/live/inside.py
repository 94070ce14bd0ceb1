"""Run commands and services in a chroot, in namespaces that end with this process.

So nothing is left running and nothing stays mounted, however the tests end: the kernel sees to it.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tests.live.chroot import Impossible, dies_with_us

SHARED_MEMORY = "dev/shm"
LOGS = "var/log/fleet-live"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_COMMAND_SECONDS = 180
_END_SECONDS = 20


class Inside:
    """A chroot with /proc and shared memory, and one folder of this computer at its own place."""

    def __init__(self, root: Path, visible: Path, environment: Mapping[str, str]) -> None:
        """`environment` is what all commands in there get beside the usual."""
        self.root = root
        self._environment = environment
        self._visible = visible
        self._keeper: subprocess.Popen[bytes] | None = None
        self._services: dict[str, subprocess.Popen[bytes]] = {}

    def open(self) -> None:
        """Make the namespaces; what an earlier session has left there is ended first."""
        end_leftovers(self.root)
        place = self.root / str(self._visible).lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.root / LOGS, ignore_errors=True)
        (self.root / LOGS).mkdir()
        # This computer's own /proc: it serves the processes of the namespace below it as well.
        script = (
            f'mount --rbind /proc "{self.root}/proc" && '
            f'mount -t tmpfs -o mode=1777 tmpfs "{self.root / SHARED_MEMORY}" && '
            f'mount --bind "{self._visible}" "{place}" && '
            'echo ready && exec 2>&- && trap "" TERM INT && while :; do sleep 86400 & wait; done'
        )
        self._keeper = subprocess.Popen(
            [*dies_with_us(), "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        said, wrong = self._keeper.stdout, self._keeper.stderr
        assert said is not None
        assert wrong is not None
        with said, wrong:
            if said.readline() != b"ready\n":
                raise Impossible(f"nothing can be mounted: {wrong.read().decode().strip()}")

    def close(self) -> None:
        """End the namespaces, with them all that runs in there, and what was started beside."""
        if self._keeper is not None:
            self._keeper.kill()
            self._keeper.wait()
            self._keeper = None
        for service in self._services.values():
            service.wait(_END_SECONDS)
        self._services.clear()
        end_leftovers(self.root)
        with suppress(OSError):
            (self.root / str(self._visible).lstrip("/")).rmdir()

    def command(self, user: str, *command: str | Path) -> list[str]:
        """Return the command of this computer's root that runs a command in there as a user."""
        more = (f"{name}={value}" for name, value in self._environment.items())
        return [*self.entrance(), *_as_user(user), *more, *map(str, command)]

    def entrance(self) -> tuple[str, ...]:
        """Return what to put before a command, to run it in the chroot as root."""
        assert self._keeper is not None, "the namespaces are not open"
        inner = _child_of(self._keeper.pid)
        return ("nsenter", f"--target={inner}", "--mount", "--pid", "chroot", str(self.root))

    def run(self, user: str, *command: str | Path, stdin: str = "") -> str:
        """Run a command in there to its end and return what it printed."""
        done = subprocess.run(
            self.command(user, *command),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        told = f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, told
        return done.stdout

    def start(self, name: str, user: str, *command: str) -> None:
        """Start a service in there; what it says goes to its log."""
        with (self.root / LOGS / f"{name}.log").open("ab") as log:
            self._services[name] = subprocess.Popen(
                self.command(user, *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a service, and wait until it has ended."""
        service = self._services.pop(name, None)
        if service is None or service.poll() is not None:
            return
        os.kill(_child_of(service.pid), how)
        try:
            service.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(_child_of(service.pid), signal.SIGKILL)
            service.wait(_END_SECONDS)

    def has_ended(self, name: str) -> bool:
        """Say whether a service that was started has ended by itself."""
        return self._services[name].poll() is not None

    def log(self, lines: int = 40) -> str:
        """Return the end of each log, to show beside a failure."""
        logs = sorted((self.root / LOGS).glob("*.log"))
        ends = [(log, log.read_text(errors="replace").splitlines()[-lines:]) for log in logs]
        return "\n".join("\n".join((f"== {log.stem}", *end)) for log, end in ends)


def end_leftovers(root: Path) -> None:
    """End every process whose root folder is this chroot: nobody but a session starts one."""
    for number in processes_in(root):
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            continue


def processes_in(root: Path) -> Iterator[int]:
    """Yield the numbers of the processes whose root folder is this one."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "root").readlink() == root:
                yield int(entry.name)
        except OSError:  # it has just ended
            continue


def _child_of(number: int) -> int:
    children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
    assert children, f"process {number} has no child"
    return int(children[0])


def _as_user(user: str) -> tuple[str, ...]:
    clean = ("env", "-i", f"PATH={_PATH}", "LC_ALL=C.UTF-8")
    if user == "root":
        return (*clean, "HOME=/root")
    identity = (f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env")
    return ("setpriv", *identity, "--", *clean, "HOME=/var/lib/debusine/server")
