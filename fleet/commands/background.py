"""This module carries out the work of runs in threads that take turns, also beside later runs.

Store, registries and console are used by one at a time; only while a thread waits for a helper of
the engine, or for a person's own commands, do the others go on. A loop's runs share the fleet's
lock with what earlier ones began: it is let go of when nothing is under way any more.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from math import inf
from time import monotonic
from typing import NamedTuple

from fleet.engines.apart import Turns
from fleet.operate.crew import Task
from fleet.operate.handing import Seen
from fleet.plan.outcome import StackOutcome
from fleet.providers.slots import Slots
from fleet.store.database import DatabaseStore

_MOST_OWN = 64
"""So many pools and machines wait for their own commands at once; providers have bounds too."""
_LOOK_SECONDS = 0.5


class _Going(NamedTuple):
    task: Task
    future: Future[None]
    run: int
    """Which of the runs began it."""


class Background:
    """What goes on, and what has ended that nobody was told of."""

    def __init__(
        self,
        jobs: int,
        store: DatabaseStore | None = None,
        ring: Callable[[], object] = lambda: None,
        patience: float = inf,
    ) -> None:
        """Have a run wait so many seconds for what it begins; `ring` is called at the end of that.

        All runs write into one `store`, which knows that they have the lock.
        """
        self.turns = Turns()
        self.slots = Slots()
        self.store = store
        self._going: dict[str, _Going] = {}
        self.cuts: list[Callable[[], None]] = []
        self.seen: Seen | None = None
        """What the run before this one saw, if it came to its end."""
        self.given: Callable[[], object] = lambda: None
        """Called when machines were given out while a run looked."""
        self._ring = ring
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
        with self.turns.mine():
            try:
                yield
            finally:
                with self.turns.aside():
                    self._own.shutdown()
                    self._others.shutdown()

    @contextmanager
    def locked(self, lock: AbstractContextManager[str | None]) -> Iterator[str | None]:
        """Have the turn, and hold the fleet's lock; yield who died holding it."""
        with self.turns.mine():
            died = None if self._is_locked else self._lock.enter_context(lock)
            self._is_running = self._is_locked = True
            self._run += 1
            try:
                yield died
            finally:
                self._is_running = False
                self._let_go()

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
            with self.turns.aside():
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
        with self.turns.mine():
            try:
                if outcome := task.work():
                    self._ended.append(outcome)
            except BaseException as error:  # noqa: BLE001 - whoever asks what has ended is told
                self._defects.append(error)
            finally:
                began = self._going.pop(task.what).run
                after()
                self._let_go()
                if began != self._run or not self._is_running:
                    self._ring()

    def _let_go(self) -> None:
        if self._is_locked and not self._is_running and not self._going:
            self._is_locked = False
            self._lock.close()
