"""This module carries out steps at a provider, several at once where it allows that."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Protocol, TypeVar, runtime_checkable

from fleet.errors import FleetError

T = TypeVar("T")


@runtime_checkable
class Hurried(Protocol):
    """A provider whose machines may be made and deleted at the same time: each takes a while."""

    at_once: int
    """How many, at most."""

    def cut_short(self) -> None:
        """End what is being done, however far it came, and begin no more."""

    def go_on(self) -> None:
        """Begin again what is asked for: nothing of before runs any more."""


def each_done(
    provider: object, steps: Sequence[T], do: Callable[[T], None]
) -> Generator[tuple[T, FleetError | None]]:
    """Carry out steps, and yield each when it has ended, with why it failed, or None.

    Where whoever asks is interrupted or closes this, what runs is ended, and no more begun.
    """

    def tried(step: T) -> FleetError | None:
        try:
            do(step)
        except FleetError as error:
            return error
        return None

    if not isinstance(provider, Hurried):
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
