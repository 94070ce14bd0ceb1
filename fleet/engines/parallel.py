"""Let threads take turns by a lock. An engine or a user's command releases it while it works."""

import threading
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Literal, TypeVar

from fleet.errors import FleetError
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


@contextmanager
def turn_released(turn: threading.Lock) -> Iterator[None]:
    """Release the lock during the body, so that another thread can run."""
    turn.release()
    try:
        yield
    finally:
        turn.acquire()


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


class YieldingEngine:
    """An engine that releases the lock while it works. Reading the record needs no turn."""

    def __init__(self, engine: Engine, turn: threading.Lock) -> None:
        self.name: Literal["embedded", "pulumi"] = engine.name
        self._engine = engine
        self._turn = turn

    def read(self, ref: StackRef) -> Stack | Unknown | None:
        """Return the recorded stack; None if it never existed, Unknown if it is unreadable."""
        return self._engine.read(ref)

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
        """Prepare a change. The body has the turn; preparing and making release it."""

        def make(progress: Progress, user_data: Mapping[str, str]) -> tuple[StackStep, ...]:
            with turn_released(self._turn):
                return change.make(self._serialize_progress(progress), user_data)

        with (
            turn_released(self._turn),
            self._engine.prepare(ref, workers) as change,
            self._turn,
        ):
            yield StackChange(change.steps, make)

    def forget(self, ref: StackRef, worker: str) -> None:
        """Remove a worker from the record of its stack, but keep its machine."""
        self._engine.forget(ref, worker)

    def _serialize_progress(self, progress: Progress) -> Progress:
        def tell(step: StackStep) -> None:
            with self._turn:
                progress(step)

        return tell


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
