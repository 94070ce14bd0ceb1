"""This module has pools changed at once where the real engine does it: threads, and helpers.

The threads take turns, so that store, registries and console are used by one at a time; only
while a helper does an engine's operation do the others go on.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from fleet.engines.apart import EngineApart, Helpers, Turns
from fleet.errors import FleetError
from fleet.operate.observe import Sources
from fleet.ports import Engine
from fleet.schema.model import Fleet

_LEAST, _MOST = 2, 8
_LOOK_SECONDS = 0.5


def default_jobs() -> int:
    """Return how many pools are changed at once: each is a few processes, which often wait."""
    return min(max(os.cpu_count() or 1, _LEAST), _MOST)


class Pace(NamedTuple):
    """How many pools are changed at once, and whether somebody waits for it."""

    jobs: int = 1
    in_haste: bool = True
    """A helper gets ready before it is known whether any is needed."""


@contextmanager
def crewed(
    fleet: Fleet,
    file: str,
    sources: Sources,
    pace: Pace,
    tell: Callable[[str], None],
) -> Iterator[tuple[Sources, Callable[[], None] | None]]:
    """Yield sources that change pools of the real engine at once, and what cuts their work short.

    Where every engine is embedded they change one after the other, in this process.
    """
    if not any(_is_apart(sources, name) for name in fleet.providers):
        yield sources, None
        return
    command = (sys.executable, "-P", "-m", "fleet.commands.engine_helper")
    crew = _Crew(Helpers(command, (fleet, file)), Turns(), pace.jobs, sources.is_ending, tell)

    def engine_of(provider: str) -> Engine:
        engine = sources.engine_of(provider)
        apart = engine.name == "pulumi"
        return EngineApart(engine, crew.helpers, crew.turns) if apart else engine

    if pace.in_haste:
        crew.helpers.start()
    try:
        yield replace(sources, engine_of=engine_of, crew=crew.run), crew.helpers.interrupt
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


def _is_apart(sources: Sources, provider: str) -> bool:
    try:
        return sources.engine_of(provider).name == "pulumi"
    except FleetError:
        return False
