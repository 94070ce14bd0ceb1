"""Run an engine in several helper processes, because Pulumi runs one program per process.

The parent process imports no slow module. A helper has its own process group, which the terminal's
Ctrl-C does not reach. Its input is sent through a pipe, so that no secret is in its arguments or
in a file.

A helper must start no more work after its parent has exited, since another run may hold the lock.
It then cancels the running CLI and exits.
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

from fleet.engines.projects import two_step_change
from fleet.engines.pulumi_process import interrupt_all
from fleet.errors import FleetError, StackFailed
from fleet.model.facts import Machine, Stack, Unknown, WorkerInputs
from fleet.ports import (
    NO_USER_DATA,
    Cleaned,
    Engine,
    MachineCleaner,
    Progress,
    StackChange,
    StackRef,
    StackStep,
    SupportsConcurrency,
)

T = TypeVar("T")

_MAX_END_POLLS = 600
_END_POLL_SECONDS = 0.1
_START_POLL_SECONDS = 0.01


class RunningPrograms:
    """Counter of the running programs, which can prevent further programs from starting."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._is_stopped = False

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a program as running during the body; raises StackFailed after `stop`."""
        with self._changed:
            if self._is_stopped:
                raise StackFailed("parent process exited; not starting more work")
            self._count += 1
        try:
            yield
        finally:
            with self._changed:
                self._count -= 1
                self._changed.notify_all()

    def stop(self, cancel: Callable[[], None]) -> None:
        """Prevent further programs, cancel the running programs, and wait until all have ended."""
        with self._changed:
            self._is_stopped = True
            # A program that is about to start would miss the signal.
            while self._count and not _has_child():
                self._changed.wait(_START_POLL_SECONDS)
            cancel()
            self._changed.wait_for(lambda: not self._count)


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


running = RunningPrograms()
"""The running programs of this process."""


class HelperCall(NamedTuple):
    """An operation for a helper process to run."""

    operation: Literal["preview", "up", "prepare"]
    ref: StackRef
    workers: tuple[WorkerInputs, ...]
    user_data: Mapping[str, str]


class ChangeDecision(NamedTuple):
    """The decision whether to make a prepared change, with the user data for the change."""

    is_yes: bool
    user_data: Mapping[str, str]


@contextmanager
def turn_released(turn: threading.Lock) -> Iterator[None]:
    """Release the lock during the body, so that another thread can run."""
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


class Helper:
    """A helper process that runs one operation at a time."""

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
        self._has_work = False
        """Whether the helper got its first operation. Before that, it starts no work."""

    @property
    def is_alive(self) -> bool:
        """Return whether the helper process runs, so that it can run further operations."""
        return self._process.poll() is None

    def do(
        self, stack: str, message: HelperCall | ChangeDecision, progress: Progress
    ) -> tuple[StackStep, ...]:
        """Run an operation; raises the engine's error, or StackFailed if the helper exits."""
        told: list[str] = []
        try:
            # Send the setting late, since sending would wait for a process that is still loading.
            for item in (message,) if self._has_work else (self._setting, message):
                self._has_work = True
                self._connection.send(item)
            while True:
                match self._connection.recv():
                    case StackStep() as step:
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
                f"({_describe_exit(self._process.wait())}); the next apply finishes what it began",
                done=tuple(told),
            ) from error

    def interrupt(self) -> None:
        """Cancel the running operation gracefully. A second call cancels it immediately."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> None:
        """Stop the helper, and wait until the helper and its children have exited."""
        if self._connection.closed:
            return
        self._connection.close()
        if not self._has_work:
            self._process.kill()
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr] # it is a pipe
        self._process.wait()
        # After a kill, the helper's CLI continues until it is interrupted.
        self.interrupt()
        never = threading.Event()
        for _ in range(_MAX_END_POLLS):
            self._reap()
            try:
                os.killpg(self._process.pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            never.wait(_END_POLL_SECONDS)

    def _reap(self) -> None:
        """Reap the helper's orphans. They are our children if we are the init of a container."""
        with suppress(ChildProcessError):
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass


class Helpers:
    """The helper processes, started on demand and reused."""

    def __init__(self, command: Sequence[str], setting: object) -> None:
        self._command = command
        self._setting = setting
        self._idle: list[Helper] = []
        self._busy: list[Helper] = []

    @contextmanager
    def one(self) -> Iterator[Helper]:
        """Yield a helper that is not in use. Only one thread at a time may call this."""
        helper = self._take_idle() or self._start()
        self._busy.append(helper)
        try:
            yield helper
        finally:
            self._busy.remove(helper)
            if helper.is_alive:
                self._idle.append(helper)

    def start(self) -> None:
        """Start a helper in advance. The first use of a helper reports a failure."""
        with suppress(StackFailed):
            self._idle.append(self._start())

    def _take_idle(self) -> Helper | None:
        """Return an idle helper, or None. Drop idle helpers that have exited."""
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
        """Cancel the operations of all busy helper processes."""
        for helper in tuple(self._busy):
            helper.interrupt()

    def end(self) -> None:
        """Stop all idle helper processes."""
        while self._idle:
            self._idle.pop().end()


class _TurnTakingEngine:
    """An engine for threads that take turns by a lock. Reading the record needs no turn."""

    def __init__(self, engine: Engine, turn: threading.Lock) -> None:
        self.name: Literal["embedded", "pulumi"] = engine.name
        self._engine = engine
        self._turn = turn

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the recorded stack; None if it never existed, Unknown if it is unreadable."""
        return self._engine.read(ref)

    def forget(self, ref: StackRef, worker: str) -> None:
        """Remove a worker from the record of its stack, but keep its machine."""
        self._engine.forget(ref, worker)

    def _serialize_progress(self, progress: Progress) -> Progress:
        def tell(step: StackStep) -> None:
            with self._turn:
                progress(step)

        return tell


class HelperEngine(_TurnTakingEngine):
    """An engine whose operations run in helper processes."""

    def __init__(self, engine: Engine, helpers: Helpers, turn: threading.Lock) -> None:
        super().__init__(engine, turn)
        self._helpers = helpers

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Return the steps that `up` would do, sorted by name, without unchanged resources."""
        return self._do(HelperCall("preview", ref, tuple(workers), {}), _ignore_step)

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Apply the changes. After a failed step, continue with the other steps."""
        return self._do(HelperCall("up", ref, tuple(workers), dict(user_data)), progress)

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        """Prepare a change in a helper. The helper runs no other operation during the body."""
        with self._helpers.one() as helper:
            steps = self._ask(
                helper, ref, HelperCall("prepare", ref, tuple(workers), {}), _ignore_step
            )
            words = [ChangeDecision(is_yes=False, user_data={})]

            def make(progress: Progress, user_data: Mapping[str, str]) -> tuple[StackStep, ...]:
                words.clear()
                return self._ask(helper, ref, ChangeDecision(True, dict(user_data)), progress)

            try:
                yield StackChange(steps, make)
            finally:
                for word in words:
                    self._ask(helper, ref, word, _ignore_step)

    def _do(self, call: HelperCall, progress: Progress) -> tuple[StackStep, ...]:
        with self._helpers.one() as helper:
            return self._ask(helper, call.ref, call, progress)

    def _ask(
        self,
        helper: Helper,
        ref: StackRef,
        message: HelperCall | ChangeDecision,
        progress: Progress,
    ) -> tuple[StackStep, ...]:
        with turn_released(self._turn):
            return helper.do(ref.name, message, self._serialize_progress(progress))


def serve(descriptor: int, engines_for: Callable[[Any], Callable[[str], Engine]]) -> None:
    """Run the operations that arrive through a pipe until it closes: a helper's main loop."""
    is_busy = threading.Event()
    _exit_with_parent(is_busy)
    connection = Connection(descriptor)

    def tell(step: StackStep) -> None:
        # If a listener raises, the SDK prints the whole event with its inputs.
        with suppress(OSError):
            connection.send(step)

    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        engine_of = engines_for(connection.recv())
        while True:
            is_busy.clear()
            call: HelperCall = connection.recv()
            is_busy.set()
            try:
                answer: object = _run_call(engine_of(call.ref.provider), call, tell, connection)
            except FleetError as error:
                answer = error
            connection.send(answer)


def _run_call(
    engine: Engine, call: HelperCall, progress: Progress, connection: Connection
) -> tuple[StackStep, ...]:
    match call.operation:
        case "preview":
            return engine.preview(call.ref, call.workers)
        case "up":
            return engine.up(call.ref, call.workers, progress, call.user_data)
        case "prepare":
            with engine.prepare(call.ref, call.workers) as change:
                connection.send(change.steps)
                word: ChangeDecision = connection.recv()
                return change.make(progress, word.user_data) if word.is_yes else ()
    assert_never(call.operation)


def _ignore_step(_: StackStep) -> None:
    """Do nothing with a step."""


def _exit_with_parent(is_busy: threading.Event) -> None:
    """Ignore signals, which the CLI handles, and cancel operations when standard input closes.

    `is_busy` is set during an operation.
    """
    signal.signal(signal.SIGINT, lambda *_: interrupt_all())
    signal.signal(signal.SIGTERM, lambda *_: None)
    leash = os.dup(sys.stdin.fileno())
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, sys.stdin.fileno())
    os.close(nothing)

    def watch() -> None:
        if not os.read(leash, 1):
            was_busy = is_busy.is_set()
            running.stop(lambda: os.killpg(0, signal.SIGINT))
            if was_busy:
                # Python gets no signal here, and would continue to read and write files.
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _describe_exit(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def run_steps(
    provider: object, steps: Sequence[T], do: Callable[[T], None]
) -> Generator[tuple[T, FleetError | None]]:
    """Run steps, and yield each step when it ends, with the step's error or None.

    If the caller is interrupted or closes this, running steps are cancelled and no other starts.
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


class YieldingEngine(_TurnTakingEngine):
    """An engine for providers of kind hooks. It releases the lock while a user's command runs."""

    def preview(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> tuple[StackStep, ...]:
        """Return the steps that `up` would do, sorted by name, without unchanged resources."""
        with turn_released(self._turn):
            return self._engine.preview(ref, workers)

    def up(
        self,
        ref: StackRef,
        workers: Sequence[WorkerInputs],
        progress: Progress,
        user_data: Mapping[str, str] = NO_USER_DATA,
    ) -> tuple[StackStep, ...]:
        """Apply the changes. After a failed step, continue with the other steps."""
        with turn_released(self._turn):
            return self._engine.up(ref, workers, self._serialize_progress(progress), user_data)

    @contextmanager
    def prepare(self, ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        """Prepare a change. The change computes its steps again when it is made."""
        yield two_step_change(self, ref, workers)


class YieldingCleaner:
    """A cleaner for providers of kind hooks. It releases the lock while a user's command runs."""

    def __init__(self, cleaner: MachineCleaner, turn: threading.Lock) -> None:
        self._cleaner = cleaner
        self._turn = turn

    def doubted(self) -> Collection[str]:
        """Return the machines of the last listing whose latest livecheck failed."""
        return self._cleaner.doubted()

    def clean(self, machine: Machine) -> Cleaned:
        """Clean a machine that a ticket released, and return the result."""
        with turn_released(self._turn):
            return self._cleaner.clean(machine)

    def particulars(self, machine: Machine) -> Mapping[str, str]:
        """Return additional data about a machine, for the ticket that has the machine."""
        return self._cleaner.particulars(machine)

    def check_unlisted(self, machines: Sequence[Machine]) -> Mapping[str, bool]:
        """Map the id of each unlisted machine to True if alive; undecided machines are omitted."""
        return self._cleaner.check_unlisted(machines)

    def forget(self, name: str) -> None:
        """Remove the provider's data about a deleted machine."""
        self._cleaner.forget(name)
