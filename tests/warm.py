"""This module holds the program loaded, and forks it for each run: loading takes most of a run.

Each run is a process of its own, with the arguments, environment, folder, umask and standard
streams of who asked: tests see no difference. What is about how a process starts (which modules
it loads, its signals, a closed stream) starts a fresh one: `tests.process.fleet_command`.
"""

import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.process import ROOT, clean_environment

CLIENT = ROOT / "tests" / "warm_client.py"
# Heavy, and loaded by few runs.
_NOT_LOADED = ("pulumi", "sim_plugin", "images")
_READY = b"ready\n"


class Warm:
    """A process that has loaded the program; ends with this one."""

    def __init__(self, folder: Path) -> None:
        self._place = folder / "warm"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(self._place)],
            cwd=ROOT,
            env=clean_environment(folder) | {"OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == _READY

    def command(self) -> tuple[str, ...]:
        """Return how to start the program here."""
        return (sys.executable, "-I", "-S", str(CLIENT), str(self._place))

    def end(self) -> None:
        """End it, once it has written down what it covered."""
        self._process.communicate()


class Run(NamedTuple):
    """What one run of the program was asked for with."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    umask: int
    streams: list[int]

    def take_place(self) -> None:
        """Make this process the one that was asked for."""
        for number, stream in enumerate(self.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.chdir(self.folder)
        os.umask(self.umask)
        os.environ.clear()
        os.environ.update(self.environment)
        time.tzset()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["fleet", *self.arguments]
        sys.path[0] = self.folder


class _Running(NamedTuple):
    """A child, and who waits for its end."""

    pid: int
    asker: socket.socket


def load() -> None:
    """Load what the program may load, as it does itself."""
    program = importlib.import_module("fleet.__main__")
    program._start_lean()  # noqa: SLF001 - what the program does first
    package = importlib.import_module("fleet")
    for module in pkgutil.walk_packages(package.__path__, "fleet."):
        if not any(part in module.name for part in _NOT_LOADED):
            importlib.import_module(module.name)
    for name in ("highspy", "re2", "sqlalchemy.dialects.sqlite"):
        importlib.import_module(name)


def serve(place: str) -> Run | None:
    """Fork for who asks; return what was asked for in each child, and None in the end."""
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as events:
        listening.bind(place)
        listening.listen()
        events.register(listening, selectors.EVENT_READ)
        events.register(0, selectors.EVENT_READ)
        os.write(1, _READY)
        while True:
            for key, _ in events.select():
                if key.fileobj == 0:
                    return None
                if isinstance(key.data, _Running):
                    _tell_end(events, key)
                    continue
                asker, _ = listening.accept()
                run = _asked(asker)
                pid = os.fork()
                if pid == 0:
                    asker.close()
                    return run
                for stream in run.streams:
                    os.close(stream)
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, _Running(pid, asker))


def _asked(asker: socket.socket) -> Run:
    size, streams, _, _ = socket.recv_fds(asker, 4, 3)
    with asker.makefile("rb") as told:
        asked = json.loads(told.read(int.from_bytes(size, "big")))
    return Run(**asked, streams=streams)


def _tell_end(events: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    _, status = os.waitpid(key.data.pid, 0)
    events.unregister(key.fileobj)
    os.close(key.fd)
    # Who was killed meanwhile waits no more.
    with key.data.asker as asker, suppress(OSError):
        asker.sendall(str(status).encode())


def main() -> None:
    """Load the program, and be it wherever it is asked for."""
    load()
    run = serve(sys.argv[1])
    if run is None:
        return
    run.take_place()
    program = sys.modules["__main__"] = sys.modules["fleet.__main__"]
    program.main()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
