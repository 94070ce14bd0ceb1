"""Run an engine in helper processes, several at once: Pulumi takes one inline program per process.

This side loads nothing that takes long. A helper is a process group of its own, which the
terminal's Ctrl-C does not reach. What it gets goes through a pipe: no secret is in its
arguments or a file.

A helper whose parent has ended must begin nothing more: others may hold the lock now.

Two of Pulumi's inline programs in one process disturb each other. When the parent of a
helper is gone, it cancels the CLI that runs, begins no other, and ends.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, Literal, NamedTuple, TypeVar, assert_never

from fleet.engines.projects import previewed
from fleet.errors import FleetError, StackFailed
from fleet.model.facts import Machine, Stack, Unknown, WorkerInputs
from fleet.ports import (
    NO_USER_DATA,
    Change,
    Cleaned,
    Engine,
    MachineCleaner,
    Progress,
    StackRef,
    Step,
    SupportsConcurrency,
)

T = TypeVar("T")

_SETTLE_STEPS = 600
_SETTLE_SECONDS = 0.1
_LOOK_SECONDS = 0.01


class Running:
    """How many programs run, and whether another may be started."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_over = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Start and await a program; raises StackFailed where no other may be started."""
        with self._changed:
            if self._is_over:
                raise StackFailed("parent process exited; not starting more work")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def stop(self, cancel: Callable[[], None]) -> None:
        """Let no other be started, cancel once what runs, and wait until it has ended."""
        with self._changed:
            self._is_over = True
            # One that is about to be started would not be reached.
            while self._count and not _has_child():
                self._changed.wait(_LOOK_SECONDS)
            cancel()
            self._changed.wait_for(lambda: not self._count)


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


running = Running()
"""The programs of this process."""


class Call(NamedTuple):
    """One operation that a helper is asked for."""

    operation: Literal["preview", "up", "prepare"]
    ref: StackRef
    workers: tuple[WorkerInputs, ...]
    user_data: Mapping[str, str]


class Word(NamedTuple):
    """What becomes of a change that was prepared."""

    is_yes: bool
    user_data: Mapping[str, str]


@contextmanager
def aside(turn: threading.Lock) -> Iterator[None]:
    """Give up the turn meanwhile: of several threads one at a time goes on."""
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


class Helper:
    """A process that does one operation after the other."""

    def __init__(self, command: Sequence[str], setting: object) -> None:
        self._setting = setting
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - this program itself
                [*command, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._is_asked = False
        """Whether it was asked for anything; before that it has begun nothing."""

    @property
    def is_alive(self) -> bool:
        """Say whether it can be asked for more."""
        return self._process.poll() is None

    def do(self, stack: str, asked: Call | Word, progress: Progress) -> tuple[Step, ...]:
        """Return what an operation did; raises as the engine does, StackFailed where it died."""
        told: list[str] = []
        try:
            # Not before: who has yet to get ready would be waited for.
            for words in (asked,) if self._is_asked else (self._setting, asked):
                self._is_asked = True
                self._connection.send(words)
            while True:
                match self._connection.recv():
                    case Step() as step:
                        told.append(step.worker)
                        progress(step)
                    case FleetError() as error:
                        raise error
                    case steps:
                        return tuple(steps)
        except (EOFError, OSError) as error:
            self.end()
            raise StackFailed(
                f"stack {stack}: the engine's process ended in the middle "
                f"({_cause(self._process.wait())}); the next apply finishes what it began",
                done=tuple(told),
            ) from error

    def interrupt(self) -> None:
        """Have it cancel what it does, in good order; a second time at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> None:
        """Have it end, and wait for that and for what it started."""
        if self._connection.closed:
            return
        self._connection.close()
        if not self._is_asked:
            self._process.kill()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr] # it is a pipe
        self._process.wait()
        # Where it was killed, the CLI that it started goes on until it is told.
        self.interrupt()
        never = threading.Event()
        for _ in range(_SETTLE_STEPS):
            self._reap()
            try:
                os.killpg(self._process.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            never.wait(_SETTLE_SECONDS)

    def _reap(self) -> None:
        """Reap what ended after it: nothing else does where we are a container's init."""
        with suppress(ChildProcessError):
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass


class Helpers:
    """Helpers that are started when they are needed, and used again."""

    def __init__(self, command: Sequence[str], setting: object) -> None:
        self._command = command
        self._setting = setting
        self._idle: list[Helper] = []
        self._busy: list[Helper] = []

    @contextmanager
    def one(self) -> Iterator[Helper]:
        """Yield one that is not in use; called by one thread at a time."""
        helper = self._idle_one() or self._start()
        self._busy.append(helper)
        try:
            yield helper
        finally:
            self._busy.remove(helper)
            if helper.is_alive:
                self._idle.append(helper)

    def start(self) -> None:
        """Have one get ready, for it takes a while; where it cannot, who needs it is told."""
        with suppress(StackFailed):
            self._idle.append(self._start())

    def _idle_one(self) -> Helper | None:
        """Return one that waits; one that died meanwhile had begun nothing, and is no loss."""
        while self._idle:
            helper = self._idle.pop()
            if helper.is_alive:
                return helper
            helper.end()
        return None

    def _start(self) -> Helper:
        try:
            return Helper(self._command, self._setting)
        except OSError as error:
            raise StackFailed(f"the engine's process cannot be started: {error}") from error

    def interrupt(self) -> None:
        """Have all of them cancel what they do."""
        for helper in tuple(self._busy):
            helper.interrupt()

    def end(self) -> None:
        """Have all of them end."""
        while self._idle:
            self._idle.pop().end()


class _InTurns:
    """An engine that is asked by threads that take turns; its record needs no turn."""

    def __init__(self, engine: Engine, turn: threading.Lock) -> None:
        self.name: Literal["embedded", "pulumi"] = engine.name
        self._engine = engine
        self._turn = turn

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the stack as recorded; None when it never existed."""
        return self._engine.read(ref)

    def forget(self, ref: StackRef, worker: str) -> None:
        """Take a worker that is gone out of the record."""
        self._engine.forget(ref, worker)

    def _telling(self, progress: Progress) -> Progress:
        def tell(step: Step) -> None:
            with self._turn:
                progress(step)

        return tell


class EngineApart(_InTurns):
    """An engine whose operations are done by helpers."""

    def __init__(self, engine: Engine, helpers: Helpers, turn: threading.Lock) -> None:
        super().__init__(engine, turn)
        self._helpers = helpers

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[Step, ...]:
        """Return what `up` would do, sorted by name, without `same`."""
        return self._do(Call("preview", ref, tuple(workers), {}), _unheard)

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[Step, ...]:
        """Apply the changes; a creation that fails does not stop the others."""
        return self._do(Call("up", ref, tuple(workers), dict(user_data)), progress)

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[Change]:
        """Have a helper hold a change and serve nothing else meanwhile."""
        with self._helpers.one() as helper:
            steps = self._ask(helper, ref, Call("prepare", ref, tuple(workers), {}), _unheard)
            words = [Word(is_yes=False, user_data={})]

            def make(progress: Progress, user_data: Mapping[str, str]) -> tuple[Step, ...]:
                words.clear()
                return self._ask(helper, ref, Word(True, dict(user_data)), progress)

            try:
                yield Change(steps, make)
            finally:
                for word in words:
                    self._ask(helper, ref, word, _unheard)

    def _do(self, call: Call, progress: Progress) -> tuple[Step, ...]:
        with self._helpers.one() as helper:
            return self._ask(helper, call.ref, call, progress)

    def _ask(
        self, helper: Helper, ref: StackRef, asked: Call | Word, progress: Progress
    ) -> tuple[Step, ...]:
        with aside(self._turn):
            return helper.do(ref.name, asked, self._telling(progress))


def serve(descriptor: int, engines_for: Callable[[Any], Callable[[str], Engine]]) -> None:
    """Do what is asked for through a pipe until that is closed; the helper's side."""
    asked = threading.Event()
    _leave_only_with_parent(asked)
    connection = Connection(descriptor)

    def tell(step: Step) -> None:
        # To the SDK a listener that raises is an event to be shown whole, inputs and all.
        with suppress(OSError):
            connection.send(step)

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        engine_of = engines_for(connection.recv())
        while True:
            asked.clear()
            call: Call = connection.recv()
            asked.set()
            try:
                answer: object = _done(engine_of(call.ref.provider), call, tell, connection)
            except FleetError as error:
                answer = error
            connection.send(answer)


def _done(
    engine: Engine, call: Call, progress: Progress, connection: Connection
) -> tuple[Step, ...]:
    match call.operation:
        case "preview":
            return engine.preview(call.ref, call.workers)
        case "up":
            return engine.up(call.ref, call.workers, progress, call.user_data)
        case "prepare":
            with engine.prepare(call.ref, call.workers) as change:
                connection.send(change.steps)
                word: Word = connection.recv()
                return change.make(progress, word.user_data) if word.is_yes else ()
    assert_never(call.operation)


def _unheard(_: Step) -> None:
    """Ignore a step."""


def _leave_only_with_parent(asked: threading.Event) -> None:
    """Leave signals to the CLI, and cancel what it does once our standard input is closed.

    `asked` is set while an operation is done.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # A handler, for what is ignored would stay ignored in the CLI.
        signal.signal(number, lambda *_: None)
    leash = os.dup(sys.stdin.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)

    def watch() -> None:
        if not os.read(leash, 1):
            is_amid = asked.is_set()
            running.stop(lambda: os.killpg(0, signal.SIGINT))
            if is_amid:
                # Python hears no signal, and would go on to look and to write settings.
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _cause(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def each_done(
    provider: object, steps: Sequence[T], do: Callable[[T], None]
) -> Generator[tuple[T, FleetError | None]]:
    """Carry out steps, and yield each when it has ended, with why it failed, or None.

    If the caller is interrupted or closes this, it ends what runs and begins no more.
    """

    def tried(step: T) -> FleetError | None:
        try:
            do(step)
        except FleetError as error:
            return error
        return None

    if not isinstance(provider, SupportsConcurrency):
        for step in steps:
            yield step, tried(step)
        return
    with ThreadPoolExecutor(provider.at_once, thread_name_prefix="machine") as threads:
        try:
            running = {threads.submit(tried, step): step for step in steps}
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            provider.cut_short()
            try:
                threads.shutdown(cancel_futures=True)
            finally:
                provider.go_on()
            raise


class EngineAside(_InTurns):
    """An engine that waits for a person's own commands."""

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[Step, ...]:
        """Return what `up` would do, sorted by name, without `same`."""
        with aside(self._turn):
            return self._engine.preview(ref, workers)

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[Step, ...]:
        """Apply the changes; a creation that fails does not stop the others."""
        with aside(self._turn):
            return self._engine.up(ref, workers, self._telling(progress), user_data)

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[Change]:
        """Hold a change; it is previewed again when it is made."""
        yield previewed(self, ref, workers)


class CleanerAside:
    """A provider that waits for a person's own commands, in the same way."""

    def __init__(self, cleaner: MachineCleaner, turn: threading.Lock) -> None:
        self._cleaner = cleaner
        self._turn = turn

    def doubted(self) -> Collection[str]:
        """Return the machines whose latest livecheck failed, as of the last listing."""
        return self._cleaner.doubted()

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine that a ticket gave back; return how that went."""
        with aside(self._turn):
            return self._cleaner.clean(machine)

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return what else is known of a machine for its ticket's answer."""
        return self._cleaner.particulars(machine)

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Return by id whether machines that no listing shows work."""
        return self._cleaner.check_unlisted(machines)

    def forget(self, name: str) -> None:
        """Forget what is remembered of a machine that is gone."""
        self._cleaner.forget(name)
