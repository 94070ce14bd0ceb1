"""Change several pools at once, also beside later runs.

Threads take turns: store, registries and console are used by one at a time, and the others go on
only while it waits for the engine or for a person's own commands. The runs of a loop hold the
fleet's lock together with what earlier runs began, until nothing is under way any more.
"""

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from math import inf
from threading import Lock
from time import monotonic
from typing import NamedTuple

from fleet.apply.observe import Sources
from fleet.apply.tickets import Seen
from fleet.clouds.ready import Slots
from fleet.engines.parallel import (
    HelperEngine,
    Helpers,
    YieldingCleaner,
    YieldingEngine,
    turn_released,
)
from fleet.model.outcome import StackOutcome
from fleet.model.plan import Action
from fleet.ports import Engine, SupportsConcurrency, Task
from fleet.schema.model import Fleet
from fleet.state.store import DatabaseStore

_HELPER = (sys.executable, "-P", "-m", "fleet.apply.engine_helper")
_MOST_OWN = 64
"""So many pools and machines wait for their own commands at once; providers have bounds too."""
_LOOK_SECONDS = 0.5


_LEAST, _MOST = 2, 8


def default_jobs() -> int:
    """Return how many pools are changed at once: each is a few processes, which often wait."""
    return min(max(os.cpu_count() or 1, _LEAST), _MOST)


class Parallelism(NamedTuple):
    """How many pools are changed at once, and in which threads."""

    jobs: int = 1
    background: "Background | None" = None
    """Where slow work goes on beside later runs; None: each run waits for its own."""


@contextmanager
def pool_executor(
    fleet: Fleet, file: str, sources: Sources, pace: Parallelism, tell: Callable[[str], None]
) -> Iterator[tuple[Sources, Callable[[], None] | None]]:
    """Yield sources that change pools at once, and what cuts their work short.

    These are pools of the real engine, and those whose machines a person's own commands make.
    Where there are none, one is changed after the other, in this process.
    """
    own = {
        name: each
        for name, each in sources.providers.items()
        if isinstance(each, SupportsConcurrency)
    }
    shared = pace.background
    has_real_engine = any(each.engine == "pulumi" for each in fleet.providers.values())
    if not own and not has_real_engine and not (shared and shared.under_way):
        yield sources, None
        return
    background = shared or Background(pace.jobs)
    helpers = Helpers(_HELPER, (fleet, file))
    if has_real_engine and not shared:
        helpers.start()  # gets ready while this process observes and plans
    slow: dict[str, SupportsConcurrency | None] = {**own}
    slow |= {name: None for name, each in fleet.providers.items() if each.engine == "pulumi"}
    executor = _ParallelPools(helpers, background, slow, sources.is_ending, tell)

    def engine_of(provider: str) -> Engine:
        engine = sources.engine_of(provider)
        if engine.name == "pulumi":
            return HelperEngine(engine, helpers, background.turn)
        return YieldingEngine(engine, background.turn) if provider in own else engine

    cleaners = {k: YieldingCleaner(each, background.turn) for k, each in sources.cleaners.items()}
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


class _ParallelPools:
    """The one of one run; what it begins may go on beside later runs."""

    def __init__(
        self,
        helpers: Helpers,
        background: "Background",
        slow: Mapping[str, SupportsConcurrency | None],
        is_ending: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        """Know which providers are `slow`: by a person's own commands, else by the real engine."""
        self._helpers = helpers
        self._background = background
        self._slow = slow
        self._is_ending = is_ending
        self._tell = tell
        self._before = background.under_way
        self._left = 1
        """What still needs the helpers: its tasks, and the run itself."""
        background.cuts.append(self._cut)

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Return what went on when this run began, or goes on now, with its machines."""
        return {**self._before, **self._background.under_way}

    def ended(self) -> Sequence[StackOutcome]:
        """Return what became of the tasks that have ended, each once; also of earlier runs'."""
        return self._background.ended()

    def run(self, tasks: Sequence[Task]) -> None:
        """Carry out tasks, some at once; each is begun in its order."""
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
        """Have the helpers end once nothing needs them any more."""
        self._left -= 1
        if not self._left:
            self._background.cuts.remove(self._cut)
            self._helpers.end()

    def _cut(self) -> None:
        self._helpers.interrupt()
        for provider in self._slow.values():
            if provider is not None:
                # For good: what follows in its pool is not begun either.
                provider.cut_short()


class _Going(NamedTuple):
    task: Task
    future: Future[None]
    run: int
    """Which of the runs began it."""


class Background:
    """What runs, and what has ended without being reported."""

    def __init__(
        self,
        jobs: int,
        store: DatabaseStore | None = None,
        wake: Callable[[], object] = lambda: None,
        patience: float = inf,
    ) -> None:
        """Have a run wait so many seconds for what it begins; `wake` is called at the end of that.

        All runs write into one `store`, which knows that they have the lock.
        """
        self.turn = Lock()
        self.slots = Slots()
        self.store = store
        self._going: dict[str, _Going] = {}
        self.cuts: list[Callable[[], None]] = []
        self.seen: Seen | None = None
        """What the run before this one saw, if it came to its end."""
        self.actions: Mapping[tuple[str, str], Action] = {}
        """What earlier runs' plans said of what goes on, by verb and machine."""
        self.given: Callable[[], object] = lambda: None
        """Called when machines were given out while a run looked."""
        self._wake = wake
        self._patience = patience
        self._ended: list[StackOutcome] = []
        self._defects: list[BaseException] = []
        self._own = ThreadPoolExecutor(_MOST_OWN, thread_name_prefix="pool")
        self._others = ThreadPoolExecutor(jobs, thread_name_prefix="pool")
        self._lock = ExitStack()
        self._run = 0
        self._is_running = False
        self._is_locked = False

    @property
    def under_way(self) -> Mapping[str, Collection[str]]:
        """Return what goes on, with its machines."""
        return {what: each.task.machines for what, each in self._going.items()}

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the turn; wait in the end for all that was begun."""
        with self.turn:
            try:
                yield
            finally:
                with turn_released(self.turn):
                    self._own.shutdown()
                    self._others.shutdown()

    @contextmanager
    def locked(self, lock: AbstractContextManager[str | None]) -> Iterator[str | None]:
        """Have the turn, and hold the fleet's lock; yield who died holding it."""
        with self.turn:
            died = None if self._is_locked else self._lock.enter_context(lock)
            self._is_running = self._is_locked = True
            self._run += 1
            try:
                yield died
            finally:
                self._is_running = False
                self._unlock_when_idle()

    def begin(self, task: Task, *, is_own: bool, after: Callable[[], None]) -> None:
        """Carry a task out in a thread; `after` is called when it has ended."""
        threads = self._own if is_own else self._others
        # It has to wait for the turn, which is ours.
        future = threads.submit(self._in_turn, task, after)
        self._going[task.what] = _Going(task, future, self._run)

    def do(self, task: Task) -> None:
        """Carry a task out here and now."""
        if outcome := task.work():
            self._ended.append(outcome)

    def wait(self, mine: Collection[str]) -> Iterator[None]:
        """Let others have the turn until these have ended, or long enough; yield now and then."""
        until = monotonic() + self._patience
        while (left := until - monotonic()) > 0:
            futures = [self._going[what].future for what in mine if what in self._going]
            if not futures:
                return
            with turn_released(self.turn):
                wait(futures, min(left, _LOOK_SECONDS))
            yield

    def ended(self) -> list[StackOutcome]:
        """Return what became of what has ended, each once; raises what a defect raised."""
        if self._defects:
            raise self._defects.pop()
        ended, self._ended = self._ended, []
        return ended

    def cut(self) -> None:
        """End what goes on, however far it came."""
        for cut in tuple(self.cuts):
            cut()

    def finish(self) -> None:
        """Wait until nothing is under way; signals are heard meanwhile."""
        while futures := [each.future for each in tuple(self._going.values())]:
            wait(futures, _LOOK_SECONDS)

    def _in_turn(self, task: Task, after: Callable[[], None]) -> None:
        with self.turn:
            try:
                if outcome := task.work():
                    self._ended.append(outcome)
            except BaseException as error:  # noqa: BLE001 - reported with what has ended
                self._defects.append(error)
            finally:
                began = self._going.pop(task.what).run
                after()
                self._unlock_when_idle()
                if began != self._run or not self._is_running:
                    self._wake()

    def _unlock_when_idle(self) -> None:
        if self._is_locked and not self._is_running and not self._going:
            self._is_locked = False
            self._lock.close()
