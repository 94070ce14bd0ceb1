"""Change several pools at the same time, and continue during later runs.

Threads take turns: only one thread at a time uses store, registries and console. Other threads
continue while that thread waits for the engine or for a user's command. The runs of a loop and
their background work hold the fleet's lock together until all work has ended.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from math import inf
from threading import Lock
from time import monotonic
from typing import NamedTuple, Union

from fleet.apply.observe import Sources
from fleet.apply.satellites import SeenRun
from fleet.clouds.ready import Slots
from fleet.engines.pulumi_cli import interrupt_all
from fleet.model.facts import Machine, WorkerInputs
from fleet.model.history import StackOutcome
from fleet.model.plan import Action
from fleet.ports import (
    Cleaned,
    Engine,
    EngineTask,
    MachineCleaner,
    Progress,
    StackChange,
    StackRef,
    StackStep,
    SupportsConcurrency,
    with_methods,
)
from fleet.schema.model import Fleet
from fleet.state.store import Store

_MAX_COMMAND_THREADS = 64
"""Maximum pools and machines whose user commands run concurrently; providers have lower limits."""
_POLL_SECONDS = 0.5


_MIN_JOBS = 2
_MAX_JOBS = 8


def default_jobs() -> int:
    """Return the default number of pools to change concurrently."""
    return min(max(os.cpu_count() or 1, _MIN_JOBS), _MAX_JOBS)


@contextmanager
def turn_released(turn: Lock) -> Iterator[None]:
    """Release the lock during the body, so that another thread can run."""
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


def yielding_engine(engine: Engine, turn: Lock) -> Engine:
    """Return an engine that releases the lock while it prepares and makes a change."""

    @contextmanager
    def prepare(ref: StackRef, workers: Sequence[WorkerInputs]) -> Iterator[StackChange]:
        def make(progress: Progress, user_data: Mapping[str, str]) -> tuple[StackStep, ...]:
            def tell(step: StackStep) -> None:
                with turn:
                    progress(step)

            with turn_released(turn):
                return change.make(tell, user_data)

        with turn_released(turn), engine.prepare(ref, workers) as change, turn:
            yield StackChange(change.steps, make)

    return with_methods(engine, {"prepare": prepare})


def yielding_cleaner(cleaner: MachineCleaner, turn: Lock) -> MachineCleaner:
    """Return a cleaner that releases the lock while a user's command cleans a machine."""

    def clean(machine: Machine) -> Cleaned:
        with turn_released(turn):
            return cleaner.clean(machine)

    return with_methods(cleaner, {"clean": clean})


Pace = Union[int, "Background"]
"""Maximum pools that are changed concurrently, or the threads that continue during later runs."""


@contextmanager
def pool_executor(
    fleet: Fleet, sources: Sources, pace: Pace, tell: Callable[[str], None]
) -> Iterator[tuple[Sources, Callable[[], None] | None]]:
    """Yield sources that change pools concurrently, and a function that stops this work.

    Concurrent are pools of the Pulumi engine and pools whose machines need user commands. Without
    such pools, this process changes pools one after the other, and the function is None.
    """
    own = {
        name: each
        for name, each in sources.providers.items()
        if isinstance(each, SupportsConcurrency)
    }
    shared = pace if isinstance(pace, Background) else None
    has_real_engine = any(each.engine == "pulumi" for each in fleet.providers.values())
    if not own and not has_real_engine and not (shared and shared.under_way):
        yield sources, None
        return
    background = pace if isinstance(pace, Background) else Background(pace)
    slow: dict[str, SupportsConcurrency | None] = {**own}
    slow |= {name: None for name, each in fleet.providers.items() if each.engine == "pulumi"}
    executor = _ParallelExecutor(background, slow, sources.is_ending, tell)

    def engine_of(provider: str) -> Engine:
        engine = sources.engine_of(provider)
        return yielding_engine(engine, background.turn) if provider in slow else engine

    cleaners = {k: yielding_cleaner(each, background.turn) for k, each in sources.cleaners.items()}
    try:
        with ExitStack() as held:
            if not shared:
                held.enter_context(background.alone())
            yield (
                replace(sources, engine_of=engine_of, cleaners=cleaners, executor=executor),
                background.cut,
            )
    finally:
        executor.leave()


class _ParallelExecutor:
    """Executor of one run, whose tasks may continue during later runs."""

    def __init__(
        self,
        background: "Background",
        slow: Mapping[str, SupportsConcurrency | None],
        is_ending: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        """Set the inputs. `slow` maps slow providers to user commands; None for Pulumi."""
        self._background = background
        self._slow = slow
        self._is_ending = is_ending
        self._tell = tell
        self._before = background.under_way
        self._left = 1
        """Number of users of the providers: the unfinished tasks, and the run itself."""
        background.cuts.append(self._cut)

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Map each task that ran at this run's start, or runs now, to its machines."""
        return {**self._before, **self._background.under_way}

    def ended(self) -> Sequence[StackOutcome]:
        """Return the results of tasks that finished since the last call, of any run."""
        return self._background.ended()

    def run(self, tasks: Sequence[EngineTask]) -> None:
        """Start tasks in order; tasks of slow providers run concurrently."""
        under_way = self.under_way
        new = [task for task in tasks if task.what not in under_way]
        for task in new:
            if task.provider in self._slow:
                self._left += 1
                is_own = self._slow[task.provider] is not None
                self._background.begin(task, is_own=is_own, after=self.leave)
        for task in new:
            if task.provider not in self._slow:
                self._background.do(task)
        was_ending = False
        for _ in self._background.wait({task.what for task in new}):
            if self._is_ending() and not was_ending:
                was_ending = True
                self._tell(
                    "stopping: finishing what has started, the next run does the rest; a "
                    "second signal cancels it"
                )

    def leave(self) -> None:
        """End one user's use of the providers. After the last user, they need no cut."""
        self._left -= 1
        if not self._left:
            self._background.cuts.remove(self._cut)

    def _cut(self) -> None:
        for provider in self._slow.values():
            if provider is not None:
                # Permanently, so that the next steps of the pool do not start either.
                provider.cut_short()


class _RunningTask(NamedTuple):
    task: EngineTask
    future: Future[None]
    run: int
    """Number of the run that started the task."""


class Background:
    """Running tasks, and the results of finished tasks that no run has reported yet."""

    def __init__(
        self,
        jobs: int,
        store: Store | None = None,
        wake: Callable[[], object] = lambda: None,
        patience: float = inf,
    ) -> None:
        """Set the inputs. A run waits `patience` seconds for a task; later ends call `wake`.

        All runs use the same `store`, which knows that they have the lock.
        """
        self.turn = Lock()
        self.slots = Slots()
        self.store = store
        self._tasks: dict[str, _RunningTask] = {}
        self.cuts: list[Callable[[], None]] = []
        self.seen: SeenRun | None = None
        """Observation of the previous run; None if that run did not complete."""
        self.actions: Mapping[tuple[str, str], Action] = {}
        """Verb and machine to the unfinished action of an earlier plan."""
        self.given: Callable[[], object] = lambda: None
        """Called when an observation assigned machines to tickets."""
        self._wake = wake
        self._patience = patience
        self._ended: list[StackOutcome] = []
        self._defects: list[BaseException] = []
        self._own = ThreadPoolExecutor(_MAX_COMMAND_THREADS, thread_name_prefix="pool")
        self._others = ThreadPoolExecutor(jobs, thread_name_prefix="pool")
        self._lock = ExitStack()
        self._run = 0
        self._is_running = False
        self._is_locked = False

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Map each running task to its machines."""
        return {what: each.task.machines for what, each in self._tasks.items()}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the turn in the block, and wait for all tasks at its end."""
        with self.turn:
            try:
                yield
            finally:
                with turn_released(self.turn):
                    self._own.shutdown()
                    self._others.shutdown()

    @contextmanager
    def locked(self, lock: AbstractContextManager[str | None]) -> Iterator[str | None]:
        """Hold the turn and the fleet's lock; yield a killed previous owner, or None."""
        with self.turn:
            died = None if self._is_locked else self._lock.enter_context(lock)
            self._is_running = self._is_locked = True
            self._run += 1
            try:
                yield died
            finally:
                self._is_running = False
                self._unlock_when_idle()

    def begin(self, task: EngineTask, *, is_own: bool, after: Callable[[], None]) -> None:
        """Run a task in another thread, and call `after` at its end."""
        threads = self._own if is_own else self._others
        # The new thread waits until this thread releases the turn.
        future = threads.submit(self._run_in_turn, task, after)
        self._tasks[task.what] = _RunningTask(task, future, self._run)

    def do(self, task: EngineTask) -> None:
        """Run a task in this thread."""
        if outcome := task.work():
            self._ended.append(outcome)

    def wait(self, mine: Collection[str]) -> Iterator[None]:
        """Let other tasks work until the tasks `mine` end, or for a limited time. Yields often."""
        until = monotonic() + self._patience
        while (left := until - monotonic()) > 0:
            futures = [self._tasks[what].future for what in mine if what in self._tasks]
            if not futures:
                return
            with turn_released(self.turn):
                wait(futures, min(left, _POLL_SECONDS))
            yield

    def ended(self) -> list[StackOutcome]:
        """Return the results of tasks that finished since the last call; re-raise a defect."""
        if self._defects:
            raise self._defects.pop()
        ended, self._ended = self._ended, []
        return ended

    def cut(self) -> None:
        """Stop all running tasks immediately."""
        interrupt_all()
        for cut in tuple(self.cuts):
            cut()

    def finish(self) -> None:
        """Wait until all tasks have ended. Signals are handled during the wait."""
        while futures := [each.future for each in tuple(self._tasks.values())]:
            wait(futures, _POLL_SECONDS)

    def _run_in_turn(self, task: EngineTask, after: Callable[[], None]) -> None:
        with self.turn:
            try:
                if outcome := task.work():
                    self._ended.append(outcome)
            except BaseException as error:  # noqa: BLE001 - reported with what has ended
                self._defects.append(error)
            finally:
                began = self._tasks.pop(task.what).run
                after()
                self._unlock_when_idle()
                if began != self._run or not self._is_running:
                    self._wake()

    def _unlock_when_idle(self) -> None:
        if self._is_locked and not self._is_running and not self._tasks:
            self._is_locked = False
            self._lock.close()
