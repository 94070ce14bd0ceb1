"""Let threads take turns by a lock. An engine or a user's command releases it while it works."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from fleet.errors import FleetError
from fleet.model.facts import Machine, WorkerInputs
from fleet.ports import (
    Cleaned,
    Engine,
    MachineCleaner,
    Progress,
    StackChange,
    StackRef,
    StackStep,
    SupportsConcurrency,
    with_methods,
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


def yielding_engine(engine: Engine, turn: threading.Lock) -> Engine:
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


def yielding_cleaner(cleaner: MachineCleaner, turn: threading.Lock) -> MachineCleaner:
    """Return a cleaner that releases the lock while a user's command cleans a machine."""

    def clean(machine: Machine) -> Cleaned:
        with turn_released(turn):
            return cleaner.clean(machine)

    return with_methods(cleaner, {"clean": clean})
