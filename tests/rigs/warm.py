"""Keep the program loaded, and forks it for each run: loading takes most of a run.

Each run is a process of its own, with the arguments, environment, folder, umask and standard
streams of who asked: tests see no difference. What is about how a process starts (which modules
it loads, a closed stream) starts a fresh one: `tests.rigs.process.fleet_command`.
"""

import atexit
import gc
import importlib
import marshal
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, NamedTuple, NoReturn, TextIO

from tests.rigs.process import ROOT, Completed, clean_environment
from tests.rigs.warm_client import PROGRAM, begin, end

CLIENT = ROOT / "tests" / "rigs" / "warm_client.py"
# Heavy, and loaded by few runs.
_NOT_LOADED = ("pulumi", "sim_plugin", "images")
_READY = b"ready\n"


class Warm:
    """A process that has loaded the program; ends with this one."""

    def __init__(self, folder: Path) -> None:
        self._place = folder / "warm"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.warm", str(self._place)],
            cwd=ROOT,
            env=clean_environment(folder) | {"OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == _READY

    def command(self, program: str = PROGRAM) -> tuple[str, ...]:
        """Return how a shell starts the program here, or another module with a `main`."""
        return (sys.executable, "-I", "-S", str(CLIENT), str(self._place), program)

    def run(
        self,
        *args: str | Path,
        cwd: Path,
        env: Mapping[str, str],
        stdin: str = "",
        program: str = PROGRAM,
    ) -> Completed:
        """Run the program to its end and return what it said, never raising for its exit code.

        `program` may be another module whose `main` needs what is loaded.
        """
        with TemporaryFile() as given, TemporaryFile() as out, TemporaryFile() as err:
            given.write(stdin.encode())
            given.seek(0)
            arguments = [str(each) for each in args]
            with self._connected() as connection:
                begin(
                    connection,
                    (program, *arguments),
                    environment=env,
                    folder=str(cwd),
                    streams=[stream.fileno() for stream in (given, out, err)],
                )
                code = end(connection)
            return Completed(["fleet", *arguments], code, _all_of(out), _all_of(err))

    @contextmanager
    def started(
        self,
        *args: str,
        cwd: Path,
        env: Mapping[str, str],
        apart: bool = True,
        program: str = PROGRAM,
    ) -> Iterator["Started"]:
        """Start the program, and kill it in the end; its errors are kept `apart`, or as output."""
        with open(os.devnull) as nothing, ExitStack() as stack:  # noqa: PTH123 - a stream
            out, said = _pipe(stack)
            err, complained = _pipe(stack) if apart else (out, said)
            connection = stack.enter_context(self._connected())
            pid = begin(
                connection,
                (program, *args),
                environment=env,
                folder=str(cwd),
                streams=(nothing.fileno(), out.fileno(), err.fileno()),
            )
            out.close()
            err.close()
            running = Started(pid, said, complained, connection)
            try:
                yield running
            finally:
                running.kill()
                running.wait()

    def _connected(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._place))
        return connection

    def end(self) -> None:
        """End it, once it has written down what it covered."""
        self._process.communicate()


@dataclass
class Started:
    """A run of the program that goes on."""

    pid: int
    stdout: TextIO
    stderr: TextIO
    _connection: socket.socket
    _code: int | None = None

    def send_signal(self, number: int) -> None:
        """Send it a signal; none once it has ended."""
        if self._code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end; return its exit code, or minus what killed it."""
        if self._code is None:
            self._code = end(self._connection)
        return self._code


def _pipe(stack: ExitStack) -> tuple[TextIO, TextIO]:
    read, write = os.pipe()
    return stack.enter_context(open(write, "w")), stack.enter_context(open(read))  # noqa: PTH123


def _all_of(stream: IO[bytes]) -> str:
    stream.seek(0)
    text = stream.read().decode("utf-8", errors="backslashreplace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


class Run(NamedTuple):
    """What one run of the program was asked for with."""

    argv: list[str]
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
        # Else it is decided where this process was forked off.
        asked = filter(None, self.environment.get("PYTHONWARNINGS", "").split(","))
        warnings._processoptions(asked)  # type: ignore[attr-defined]  # noqa: SLF001 - as Python does
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["fleet", *self.argv[1:]]
        sys.path[0] = self.folder


class _Running(NamedTuple):
    """A child, and who waits for its end."""

    pid: int
    asker: socket.socket


def load() -> None:
    """Load what the program may load, as it does itself."""
    importlib.import_module(PROGRAM)
    package = importlib.import_module("fleet")
    for module in pkgutil.walk_packages(package.__path__, "fleet."):
        if not any(part in module.name for part in _NOT_LOADED):
            importlib.import_module(module.name)
    for name in ("highspy", "re2", "sqlalchemy.dialects.sqlite"):
        importlib.import_module(name)
    importlib.import_module("fleet.program").build_parser()
    http = importlib.import_module("fleet.queues.http")
    http.trusted()
    http.Reader.pause = staticmethod(lambda _: None)  # no test waits for a server
    store = importlib.import_module("fleet.state.store")
    vars(store)["first_id"] = lambda _: int(os.environ.get("TICKETS_AFTER", "0"))
    _try_out()
    gc.freeze()


def _try_out() -> None:
    """Run what most runs do, so that none begins by filling the caches of what it loaded."""
    from tests.rigs.trial import Trial  # loads the program, which `load` does first

    with TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        trial.wait_for("1")
        for command in ("validate", "state init", "apply", "plan", "status --site site"):
            code, said = trial.do(*command.split())
            assert code == 0, said
    assert threading.active_count() == 1, "a fork would lose its threads"


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
                with suppress(OSError):
                    asker.sendall(pid.to_bytes(4, "big"))
                events.register(os.pidfd_open(pid), selectors.EVENT_READ, _Running(pid, asker))


def _asked(asker: socket.socket) -> Run:
    size, streams, _, _ = socket.recv_fds(asker, 4, 3)
    with asker.makefile("rb") as told:
        words = told.read(int.from_bytes(size, "big"))
    argv, environment, folder, umask = marshal.loads(words)  # noqa: S302 - of our own process
    return Run(argv, environment, folder, umask, streams)


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
    program = sys.modules["__main__"] = importlib.import_module(run.argv[0])
    try:
        program.main()
    except SystemExit as ended:
        leave(ended.code)


def leave(code: str | int | None) -> NoReturn:
    """End as an interpreter does, but leave the memory that all runs share as it is.

    Giving it back piece by piece would copy it first, and take as long as the run itself.
    """
    assert code is None or isinstance(code, int)
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - waits for threads
    atexit._run_exitfuncs()  # noqa: SLF001 - only the interpreter itself calls it otherwise
    sys.stdout.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
