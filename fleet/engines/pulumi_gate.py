"""This module holds an update of the real engine between its own preview and its first change.

`pulumi up` runs a program twice: for its preview, and to change things. Before the second run has
declared anything, nothing is changed; so the second run waits until somebody has looked.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NoReturn

from fleet.errors import PlanRefused, StackFailed
from fleet.ports import StackRef

if TYPE_CHECKING:
    from types import TracebackType

Program = Callable[[], None]


class Gate(AbstractContextManager["Gate"]):
    """An update that waits after its preview: let through once, or given up when left."""

    def __init__(self, ref: StackRef, preview: Program) -> None:
        self._ref = ref
        self._preview = preview
        self._update: Program | None = None
        self._wrong: Exception | None = None
        self._is_here = threading.Event()
        self._is_decided = threading.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="update")
        self._running: Future[None] | None = None

    def passes(self, *, is_preview: bool) -> bool:
        """Say whether the engine may run the program; wait where that is to be decided."""
        if is_preview:
            return True
        self._is_here.set()
        self._is_decided.wait()
        return self._update is not None

    def program(self) -> None:
        """Declare what belongs to this run of the engine's."""
        if self._update is not None:
            self._update()
            return
        try:
            self._preview()
        except Exception as error:
            self._wrong = error
            raise

    def start(self, up: Callable[[], None]) -> None:
        """Have `up` run to the end of its preview; raises what it does.

        What the program itself refuses is PlanRefused, in its own words.
        """
        self._running = self._thread.submit(up)
        self._running.add_done_callback(lambda _: self._is_here.set())
        self._is_here.wait()
        if self._wrong:
            raise PlanRefused(f"stacks/{self._ref.project}: {self._wrong}") from self._wrong
        if self._running.done():
            self._raise_end(self._running)

    def let_through(self, update: Program) -> None:
        """Have the update be made; raises what it does, or what has ended it meanwhile."""
        if self._running and self._running.done():
            self._raise_end(self._running)
        self._update = update
        self._is_decided.set()
        if self._running:
            self._running.result()

    def _raise_end(self, running: Future[None]) -> NoReturn:
        running.result()
        raise StackFailed(f"stack {self._ref.name}: the engine ended after its preview")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> None:
        """Give up what was not let through, and wait for its end."""
        self._is_decided.set()
        self._thread.shutdown()
