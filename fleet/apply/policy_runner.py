"""A process that runs policies, each file in a process of its own, and tells what came of them.

`fleet check` starts it before it reads anything, for what reads an unapproved fleet.yaml starts no
program: python -I -m fleet.apply.policy_runner. It reads one `Task` from its standard input, and
writes a line of JSON for each file.
"""

import gc
import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError

from fleet.model.policies import Failure, PolicyFile, PolicyTest
from fleet.model.values import Value
from fleet.state.confined import confine
from fleet.state.sandbox import give_up_files, leave_network, limit

ABSENT = "pytest"
"""What the first line says where pytest is not installed."""
_MEMORY = 2 * 1024**3
_MOST_OUTPUT, _MOST_TOLD = 16 * 1024, 1024 * 1024
_CHUNK = 64 * 1024
_GRACE = 2.0
_WHOLE = 0, 1, 5
"""Exit codes of pytest when it ran all tests: they passed, some did not, there are none."""


class Task(Value):
    """What to run: files by their absolute paths, and the JSON of each fixture."""

    files: tuple[str, ...]
    given: Mapping[str, str | None]
    seconds: float


class Means(Value):
    """What keeps policies in: the kernel's own means, where it has them."""

    network: bool
    """They are in a namespace without a network."""
    files: bool
    """Landlock forbids them to write files and to start programs."""


def main() -> None:
    """Run what standard input asks for."""
    network = leave_network()
    try:
        import fleet.apply.policy_plugin
    except ImportError as error:
        if error.name != ABSENT:
            raise
        _say({"absent": ABSENT})
        return
    del fleet
    # The whole process is copied for each file: nothing of it is to be touched.
    gc.freeze()
    text = sys.stdin.buffer.read()
    if not text:
        return
    task = Task.model_validate_json(text)
    files = _landlock_works()
    _say(Means(network=network, files=files).model_dump())
    until = time.monotonic() + task.seconds
    for number, file in enumerate(task.files):
        # One that takes all the time that it can get leaves the others theirs.
        share = (until - time.monotonic()) / (len(task.files) - number)
        _say(run_file(Path(file), task.given, max(0.1, share)).model_dump(mode="json"))


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _landlock_works() -> bool:
    """Say whether files can be given up, tried by a process that ends then."""
    child = os.fork()
    if not child:
        os._exit(0 if give_up_files() else 1)
    return os.waitpid(child, 0)[1] == 0


def run_file(file: Path, given: Mapping[str, str | None], seconds: float) -> PolicyFile:
    """Return what came of the tests of one file, run by a process that has this long."""
    told, tells = os.pipe()
    said, says = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        os.close(said)
        _run_here(file, given, tells=tells, says=says, seconds=seconds)
    os.close(tells)
    os.close(says)
    heard = _Heard()
    with ExitStack() as stack:
        stack.callback(os.close, told)
        stack.callback(os.close, said)
        in_time = _hear(child, {told: heard.lines, said: heard.output}, seconds)
        status = _end(child)
    ending = "" if heard.is_whole else _ending(status, seconds, in_time=in_time)
    return PolicyFile(
        file=str(file),
        tests=tuple(_tests(heard, ending)),
        output=bytes(heard.output.kept).decode(errors="replace"),
        dropped=heard.output.dropped,
    )


def _run_here(
    file: Path, given: Mapping[str, str | None], *, tells: int, says: int, seconds: float
) -> NoReturn:
    """Run a file in this process, which has given up all else, and end it."""
    from fleet.apply.policy_plugin import Policies, run

    os.setsid()
    for stream in (1, 2):
        os.dup2(says, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    sys.dont_write_bytecode = True
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    refused: list[str] = []

    def tell(kind: str, value: object) -> None:
        os.write(tells, json.dumps({kind: value}).encode() + b"\n")

    try:
        limit(memory=_MEMORY, seconds=int(seconds) + 1)
        give_up_files()
        confine([str(file.parent)], refused.append)
        tell("ends", run(file, Policies(str(file), given, tell=tell, refused=refused)))
        sys.stdout.flush()
    finally:
        # Nothing of this process is worth tidying up; nor may a policy's `atexit` run.
        os._exit(0)


class _Pipe:
    """The beginning of what came through a pipe, and how much more there was."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.kept = bytearray()
        self.dropped = 0

    def take(self, data: bytes) -> None:
        room = self._most - len(self.kept)
        self.kept += data[:room]
        self.dropped += max(0, len(data) - room)


class _Heard:
    """What a file's process told and printed. It is a policy's: none of it is to be trusted."""

    def __init__(self) -> None:
        self.lines = _Pipe(_MOST_TOLD)
        self.output = _Pipe(_MOST_OUTPUT)

    def of(self, kind: str) -> Iterator[Any]:
        for line in bytes(self.lines.kept).splitlines():
            with suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict) and kind in said:
                    yield said[kind]

    @property
    def is_whole(self) -> bool:
        return any(code in _WHOLE for code in self.of("ends"))


def _hear(child: int, pipes: Mapping[int, _Pipe], seconds: float) -> bool:
    """Take what comes until a process ends; False where that takes longer than it may."""
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        ending = os.pidfd_open(child)
        stack.callback(os.close, ending)
        selector = stack.enter_context(selectors.DefaultSelector())
        for descriptor in (ending, *pipes):
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ)
        while (left := until - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                if key.fd == ending:
                    # What it started may hold its pipes open: only what is there is read.
                    for descriptor, pipe in pipes.items():
                        while _take(descriptor, pipe) and time.monotonic() < until + _GRACE:
                            pass
                    return True
                if not _take(key.fd, pipes[key.fd]):
                    selector.unregister(key.fd)
    return False


def _take(descriptor: int, pipe: _Pipe) -> bool:
    """Take a part of what a pipe holds; False when that is nothing."""
    try:
        data = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return False
    pipe.take(data)
    return bool(data)


def _end(child: int) -> int:
    """End a process and its group, and return the status that it ended with."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _ending(status: int, seconds: float, *, in_time: bool) -> str:
    if not in_time:
        return f"did not finish within {seconds:.0f} s and was stopped"
    if os.WIFSIGNALED(status):
        return f"ended its process by {signal.Signals(os.WTERMSIG(status)).name}"
    return f"ended its process with status {os.WEXITSTATUS(status)}"


def _tests(heard: _Heard, ending: str) -> Iterator[PolicyTest]:
    """Yield a result for each test: those that did not come to one are broken."""
    results: dict[str, PolicyTest] = {}
    for said in heard.of("test"):
        with suppress(ValidationError):
            test = PolicyTest.model_validate(said)
            results[test.name] = test
    yield from results.values()
    begun = [name for name in heard.of("begins") if isinstance(name, str)][-1:]
    found = {name: line for name, line in _found(heard) if name not in results}
    if not ending:
        if not results and not found:
            yield _broken("import", 1, "has no function test_…, so it checks nothing")
        return
    if not any(name in found for name in begun) and [*results] != ["import"]:
        where = "while it was read" if not results and not found else "after its tests"
        yield _broken("import", 1, f"{ending} {where}")
    for name, line in found.items():
        rest = "was not run, for an earlier one of its file did not come to its end"
        yield _broken(name, line, ending if name in begun else rest)


def _broken(name: str, line: int, message: str) -> PolicyTest:
    failure = Failure(message=message, line=line)
    return PolicyTest(name=name, line=line, outcome="broken", failures=(failure,))


def _found(heard: _Heard) -> Iterator[tuple[str, int]]:
    for tests in heard.of("tests"):
        for each in tests if isinstance(tests, list) else ():
            match each:
                case [str(name), int(line)]:
                    yield name, line


if __name__ == "__main__":
    main()
