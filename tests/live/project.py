"""A folder with a fleet.yaml about the real server, and the program run in it."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.live.inside import processes_in
from tests.live.relay import Relay
from tests.live.workspace import Workspace
from tests.rigs.process import clean_environment, fleet_command

MACHINES = "machines"
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SPARSE = {"cores": 1, "memory": "1GiB"}
_OFFERED = (
    "worker:type:external",
    *("worker:build-arch:amd64", "worker:build-arch:i386", "worker:cap:mmdebstrap"),
    *("worker:task:worker:noop:version:1", "worker:task:worker:mmdebstrap:version:1"),
    "worker:task:worker:simplesystemimagebuild:version:1",
)
SID = {"suite": "sid", "architecture": "amd64", "provides": [*_OFFERED]}
"""What the workers of the chroot are, as an image."""


@dataclass(frozen=True)
class Access:
    """How fleet reaches the server: through relays, so that a test can get in the way."""

    http: Relay
    sql: Relay
    reader: str
    admin: str
    """DSNs of the role that reads and of the one that writes."""


class Project:
    """A fleet of processes on this computer, for one workspace of the real server."""

    def __init__(
        self, folder: Path, workspace: Workspace, access: Access, *, programs: Path | None = None
    ) -> None:
        """Prepare it; its machines find `programs` before all others."""
        self._path = f"{programs}:{_PATH}" if programs else _PATH
        self.folder = folder
        self.machines = folder / MACHINES
        self.name = ""
        self._workspace = workspace
        self._access = access
        (folder / "home").mkdir()

    def write(
        self,
        *,
        name: str,
        pools: Mapping[str, object],
        admin: object = None,
        rules: object = None,
        asks_as: str = "DEBUSINE_TOKEN",
        **more: object,
    ) -> None:
        """Write a fleet.yaml, and make its store.

        `admin` is a command in place of SQL, `rules` says where the server keeps its task
        configuration, `asks_as` is DEBUSINE_OWNER where fleet posts requests itself, `more` are
        further keys.
        """
        self.name = name
        server = self._workspace.server
        machine = ("env", "-i", f"PATH={self._path}", "LC_ALL=C.UTF-8")
        run = (*server.inside.entrance(), *machine, "HOME={home}")
        debusine = {
            "kind": "debusine",
            "url": f"http://127.0.0.1:{self._access.http.port}",
            "scopes": [self._workspace.scope],
            "token": {"env": asks_as},
            "read": {"env": "READ_DSN"},
            "admin": admin or {"dsn": {"env": "ADMIN_DSN"}},
            **({"rules": rules} if rules else {}),
        }
        written = {
            "fleet": name,
            "cadence": "5s",
            "providers": {
                "here": {
                    "kind": "local",
                    "run": [*run, "debusine-worker", "--log-stderr"],
                    "path": MACHINES,
                    "types": {"process": _SPARSE},
                }
            },
            "queues": {"debian": debusine},
            "images": {"sid": SID},
            "pools": {pool: _pool(said) for pool, said in pools.items()},
            **more,
        }
        text = yaml.safe_dump(written, sort_keys=False)
        (self.folder / "fleet.yaml").write_text(text, encoding="utf-8")
        self.fleet("state", "init")

    def fleet(self, *args: str, timeout: float = 420) -> str:
        """Run the program to its end, which has to be in order, and return what it said."""
        done = subprocess.run(
            [*fleet_command(), *args],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, (
            f"fleet {' '.join(args)}: {done.returncode}\n{_end(done.stdout)}"
        )
        return done.stdout

    def start(self, *args: str) -> "Running":
        """Start the program and let it run, until this process ends at the latest."""
        said = self.folder / f"said-{time.monotonic_ns()}.txt"
        with said.open("wb") as out:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", "--", *fleet_command(), *args],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return Running(process, said)

    def machine_folders(self) -> list[str]:
        """Return the machines that the provider knows."""
        found = self.machines.glob("[!.]*") if self.machines.exists() else ()
        return sorted(each.name for each in found)

    def worker_processes(self) -> list[str]:
        """Return the homes of the workers that run, whether or not a machine is known."""
        return sorted(_environment_of(number).get("HOME", "") for number in self._workers())

    def end_machines(self) -> None:
        """End what runs of this project's machines, however the test came out."""
        for number in self._workers():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def machine_logs(self) -> str:
        """Return what the workers that exist have said, to show beside a failure."""
        logs = sorted(self.machines.glob("*/log")) if self.machines.exists() else []
        return "\n".join(f"== {log.parent.name}\n{log.read_text()[-2000:]}" for log in logs)

    def _workers(self) -> list[int]:
        return [
            number
            for number in processes_in(self._workspace.server.inside.root)
            if _environment_of(number).get("HOME", "").startswith(str(self.folder))
        ]

    def _environment(self) -> dict[str, str]:
        secrets = {
            "DEBUSINE_TOKEN": self._workspace.viewer,
            "DEBUSINE_OWNER": self._workspace.builder,
            "READ_DSN": self._access.reader,
            "ADMIN_DSN": self._access.admin,
        }
        return clean_environment(self.folder / "home", secrets)


@dataclass(frozen=True)
class Running:
    """The program while it runs."""

    process: "subprocess.Popen[bytes]"
    said: Path

    def wait_for(self, text: str, *, times: int = 1, seconds: float = 120) -> None:
        """Wait until it has said something that often from now on."""
        until = time.monotonic() + seconds
        before = self.said.read_text(encoding="utf-8").count(text)
        while (told := self.said.read_text(encoding="utf-8")).count(text) < before + times:
            assert self.process.poll() is None, f"it has ended\n{_end(told)}"
            assert time.monotonic() < until, f"{text!r} was not said in {seconds} s\n{_end(told)}"
            time.sleep(0.05)

    def kill_after(self, seconds: float) -> None:
        """Kill it when it has run for so long; it has to be at work until then."""
        with pytest.raises(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.kill()

    def end(self, *, seconds: float = 420) -> str:
        """Wait until it ends, which has to be in order, and return what it said."""
        try:
            code = self.process.wait(seconds)
        finally:
            self.kill()
        told = self.said.read_text(encoding="utf-8")
        assert code == 0, f"ended with {code}\n{_end(told)}"
        return told

    def kill(self) -> None:
        """Kill it, wherever it is, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def _end(told: str) -> str:
    """Return as much of the end as a person can read."""
    return told[-6000:]


def _pool(pool: object) -> object:
    assert isinstance(pool, dict)
    return {"provider": "here", "machine": "process", "image": "sid", **pool}


def _environment_of(number: int) -> dict[str, str]:
    try:
        parts = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return {}
    pairs = (os.fsdecode(part).partition("=") for part in parts)
    return {name: value for name, _, value in pairs}
