"""This module has an engine's operations done by helper processes, so that stacks change at once.

Two of Pulumi's inline programs in one process disturb each other. When whoever started a helper is
gone, it cancels the CLI that runs, begins no other, and ends.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any, Literal, NamedTuple, assert_never

from fleet.engines.helper_process import HelperProcess
from fleet.engines.running import running
from fleet.errors import FleetError, StackFailed
from fleet.facts import Stack, Unknown, WorkerInputs
from fleet.ports import NO_USER_DATA, Change, Engine, Progress, StackRef, Step


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


class Turns:
    """Lets one of several threads go on at a time; they change where one waits for a helper."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def mine(self) -> Iterator[None]:
        """Go on alone."""
        with self._lock:
            yield

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let others go on meanwhile."""
        self._lock.release()
        try:
            yield
        finally:
            self._lock.acquire()


class Helper:
    """A process that does one operation after the other."""

    def __init__(self, process: HelperProcess, setting: object) -> None:
        self._process = process
        self._setting = setting

    def do(self, stack: str, asked: Call | Word, progress: Progress) -> tuple[Step, ...]:
        """Return what an operation did; raises as the engine does, StackFailed where it died."""
        told: list[str] = []
        connection = self._process.connection
        try:
            # Not before: who has yet to get ready would be waited for.
            for words in (asked,) if self._process.is_asked else (self._setting, asked):
                self._process.is_asked = True
                connection.send(words)
            while True:
                match connection.recv():
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
                f"({_cause(self._process.exit_code)}); the next apply finishes what it began",
                done=tuple(told),
            ) from error

    @property
    def is_alive(self) -> bool:
        """Say whether it can be asked for more."""
        return self._process.is_alive

    def interrupt(self) -> None:
        """Have it cancel what it does, in good order; a second time at once."""
        self._process.interrupt()

    def end(self) -> None:
        """Have it end, and wait for that and for what it started."""
        self._process.end()


class Helpers:
    """Helpers that are started when they are needed, and used again."""

    def __init__(self, command: Sequence[str], setting: object) -> None:
        self._command = command
        self._setting = setting
        self._idle: list[Helper] = []
        self._busy: list[Helper] = []

    @contextmanager
    def one(self) -> Iterator[Helper]:
        """Yield one that nobody else uses; called by one thread at a time."""
        helper = self._idle_one() or self._start()
        self._busy.append(helper)
        try:
            yield helper
        finally:
            self._busy.remove(helper)
            if helper.is_alive:
                self._idle.append(helper)

    def take(self, process: HelperProcess) -> None:
        """Use a process that was started before anybody knew what it would be told."""
        self._idle.append(Helper(process, self._setting))

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
            return Helper(HelperProcess(self._command), self._setting)
        except OSError as error:
            raise StackFailed(f"no process for the engine can be started: {error}") from error

    def interrupt(self) -> None:
        """Have all of them cancel what they do."""
        for helper in tuple(self._busy):
            helper.interrupt()

    def end(self) -> None:
        """Have all of them end."""
        while self._idle:
            self._idle.pop().end()


class EngineApart:
    """An engine whose operations are done by helpers; it is asked by threads that take turns."""

    def __init__(self, engine: Engine, helpers: Helpers, turns: Turns) -> None:
        self.name: Literal["embedded", "pulumi"] = engine.name
        self._engine = engine
        self._helpers = helpers
        self._turns = turns

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the stack as recorded; None when it never existed."""
        return self._engine.read(ref)

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
        """Make it so; a creation that fails does not stop the others."""
        return self._do(Call("up", ref, tuple(workers), dict(user_data)), progress)

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[Change]:
        """Have a helper hold a change, which is nobody else's meanwhile."""
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

    def forget(self, ref: StackRef, worker: str) -> None:
        """Take a worker that is gone out of the record."""
        self._engine.forget(ref, worker)

    def _do(self, call: Call, progress: Progress) -> tuple[Step, ...]:
        with self._helpers.one() as helper:
            return self._ask(helper, call.ref, call, progress)

    def _ask(
        self, helper: Helper, ref: StackRef, asked: Call | Word, progress: Progress
    ) -> tuple[Step, ...]:
        def tell(step: Step) -> None:
            with self._turns.mine():
                progress(step)

        with self._turns.aside():
            return helper.do(ref.name, asked, tell)


def serve(descriptor: int, engines_for: Callable[[Any], Callable[[str], Engine]]) -> None:
    """Do what is asked for through a pipe until that is closed; the helper's side."""
    asked = threading.Event()
    _leave_only_with_whoever_started_it(asked)
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
    """Take a step of which nobody is told."""


def _leave_only_with_whoever_started_it(asked: threading.Event) -> None:
    """Leave signals to the CLI, and cancel what it does once nobody holds our standard input.

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
