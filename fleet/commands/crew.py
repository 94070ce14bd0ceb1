"""This module has pools changed at once where the real engine does it: threads, and helpers.

The threads take turns, so that store, registries and console are used by one at a time; only
while a helper does an engine's operation do the others go on.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from fleet.commands.early import HELPER
from fleet.engines.apart import EngineApart, Helpers, Turns
from fleet.engines.helper_process import HelperProcess
from fleet.ports import Engine
from fleet.ports.at_once import Hurried
from fleet.schema.model import Fleet

if TYPE_CHECKING:
    from fleet.operate.observe import Sources

_LEAST, _MOST = 2, 8
_LOOK_SECONDS = 0.5


def default_jobs() -> int:
    """Return how many pools are changed at once: each is a few processes, which often wait."""
    return min(max(os.cpu_count() or 1, _LEAST), _MOST)


class Pace(NamedTuple):
    """How many pools are changed at once, and by whom."""

    jobs: int = 1
    helpers: Helpers | None = None
    """Some that were started before; None: they are when it is known that any is needed."""


@contextmanager
def early_helpers(
    fleet: Fleet, file: str, process: HelperProcess | None
) -> Iterator[Helpers | None]:
    """Yield helpers of which one gets ready, before anybody knows whether it is needed.

    None where every engine is embedded: there is nothing for them to do.
    """
    if not _has_real_engine(fleet):
        if process:
            process.end()
        yield None
        return
    helpers = _helpers_of(fleet, file)
    if process:
        helpers.take(process)
    else:
        helpers.start()
    try:
        yield helpers
    finally:
        helpers.end()


@contextmanager
def crewed(
    fleet: Fleet,
    file: str,
    sources: "Sources",
    pace: Pace,
    tell: Callable[[str], None],
) -> Iterator[tuple["Sources", Callable[[], None] | None]]:
    """Yield sources that change pools of the real engine at once, and what cuts their work short.

    Where every engine is embedded they change one after the other, in this process.
    """
    if not _has_real_engine(fleet):
        yield sources, None
        return
    helpers = pace.helpers or _helpers_of(fleet, file)
    crew = _Crew(helpers, Turns(), pace.jobs, sources.is_ending, tell)

    def engine_of(provider: str) -> Engine:
        engine = sources.engine_of(provider)
        apart = engine.name == "pulumi"
        return EngineApart(engine, crew.helpers, crew.turns) if apart else engine

    def cut() -> None:
        crew.helpers.interrupt()
        for provider in sources.providers.values():
            if isinstance(provider, Hurried):
                # For good: what follows in its pool is not begun either.
                provider.cut_short()

    try:
        yield replace(sources, engine_of=engine_of, crew=crew.run), cut
    finally:
        crew.helpers.end()


@dataclass(frozen=True)
class _Crew:
    helpers: Helpers
    turns: Turns
    jobs: int
    is_ending: Callable[[], bool]
    tell: Callable[[str], None]

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Carry out all tasks, some at once; each is begun in its order."""
        with ThreadPoolExecutor(self.jobs, thread_name_prefix="pool") as threads:
            self._wait([threads.submit(self._in_turn, task) for task in tasks])

    def _in_turn(self, task: Callable[[], None]) -> None:
        with self.turns.mine():
            task()

    def _wait(self, futures: Sequence[Future[None]]) -> None:
        was_ending = False
        left = set(futures)
        while left:
            done, left = wait(left, _LOOK_SECONDS, FIRST_EXCEPTION)
            for future in done:
                future.result()
            if left and self.is_ending() and not was_ending:
                was_ending = True
                with self.turns.mine():
                    self.tell(
                        "asked to end: what was begun is done first, the rest waits for the next "
                        "run; asked again, that is cancelled too"
                    )


def _has_real_engine(fleet: Fleet) -> bool:
    return any(provider.engine == "pulumi" for provider in fleet.providers.values())


def _helpers_of(fleet: Fleet, file: str) -> Helpers:
    return Helpers(HELPER, (fleet, file))
