"""This module has pools changed at once where that takes a while: in threads, and by helpers."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

from fleet.commands.background import Background
from fleet.commands.early import HELPER
from fleet.engines.apart import EngineApart, Helpers
from fleet.engines.aside import EngineAside, LenderAside
from fleet.engines.helper_process import HelperProcess
from fleet.operate.crew import Task
from fleet.operate.observe import Sources
from fleet.plan.outcome import StackOutcome
from fleet.ports import Engine
from fleet.ports.at_once import Hurried
from fleet.schema.model import Fleet

_LEAST, _MOST = 2, 8


def default_jobs() -> int:
    """Return how many pools are changed at once: each is a few processes, which often wait."""
    return min(max(os.cpu_count() or 1, _LEAST), _MOST)


class Pace(NamedTuple):
    """How many pools are changed at once, and by whom."""

    jobs: int = 1
    helpers: Helpers | None = None
    """Some that were started before; None: they are when it is known that any is needed."""
    background: Background | None = None
    """Where work that takes long goes on beside later runs; None: a run waits for it."""


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
    sources: Sources,
    pace: Pace,
    tell: Callable[[str], None],
) -> Iterator[tuple[Sources, Callable[[], None] | None]]:
    """Yield sources that change pools at once, and what cuts their work short.

    These are pools of the real engine, and those whose machines a person's own commands make.
    Where there are none, one is changed after the other, in this process.
    """
    own = {name: each for name, each in sources.providers.items() if isinstance(each, Hurried)}
    shared = pace.background
    if not own and not _has_real_engine(fleet) and not (shared and shared.under_way):
        yield sources, None
        return
    background = shared or Background(pace.jobs)
    helpers = pace.helpers or _helpers_of(fleet, file)
    slow: dict[str, Hurried | None] = {**own}
    slow |= {name: None for name, each in fleet.providers.items() if each.engine == "pulumi"}
    crew = _Crew(helpers, background, slow, sources.is_ending, tell)

    def engine_of(provider: str) -> Engine:
        engine = sources.engine_of(provider)
        if engine.name == "pulumi":
            return EngineApart(engine, helpers, background.turns)
        return EngineAside(engine, background.turns) if provider in own else engine

    lenders = {k: LenderAside(each, background.turns) for k, each in sources.lenders.items()}
    try:
        with ExitStack() as held:
            if not shared:
                held.enter_context(background.alone())
            yield replace(sources, engine_of=engine_of, lenders=lenders, crew=crew), background.cut
    finally:
        crew.leave()


class _Crew:
    """The one of one run; what it begins may go on beside later runs."""

    def __init__(
        self,
        helpers: Helpers,
        background: Background,
        slow: Mapping[str, Hurried | None],
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
                    "asked to end: what was begun is done first, the rest waits for the next "
                    "run; asked again, that is cancelled too"
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


def _has_real_engine(fleet: Fleet) -> bool:
    return any(provider.engine == "pulumi" for provider in fleet.providers.values())


def _helpers_of(fleet: Fleet, file: str) -> Helpers:
    return Helpers(HELPER, (fleet, file))
