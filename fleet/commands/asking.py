"""This module asks several sources at once, under one deadline for everything that is read."""

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from math import inf
from threading import Thread
from typing import TypeVar

from fleet.errors import FleetError
from fleet.facts import Unknown

T = TypeVar("T")
_LOOK_SECONDS = 0.2
_SHARE = 4
"""What is done meanwhile takes at most one part in so many of the time."""


class Together:
    """The time that all sources of one observation have together: two that are slow in vain.

    A source that is late is left to itself, in a thread that does not hold the process up: what
    it says then is heard by nobody.
    """

    def __init__(
        self, seconds: float = 600, meanwhile: Callable[[], object] | None = None
    ) -> None:
        """`meanwhile` is called again and again while a source is awaited."""
        self._meanwhile = meanwhile
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._took: dict[str, float] = {}

    def __call__(self, kind: str, asked: Mapping[str, Callable[[], T]]) -> dict[str, T | Unknown]:
        """Return what each source tells, by name, or why it failed or is late."""
        began = time.monotonic()
        answers = {name: self._begin(f"{kind} {name}", asked[name]) for name in sorted(asked)}
        self._await(answers.values())
        told: dict[str, T | Unknown] = {}
        for name, answer in answers.items():
            try:
                told[name] = (
                    answer.result() if answer.done() else self._late(f"{kind} {name}", began)
                )
            except FleetError as error:
                told[name] = Unknown(unknown=str(error))
        return told

    def _await(self, answers: Collection[Future[T]]) -> None:
        pause = inf if self._meanwhile is None else _LOOK_SECONDS
        while (left := self._until - time.monotonic()) > 0:
            if not wait(answers, min(left, pause)).not_done or self._meanwhile is None:
                return
            began = time.monotonic()
            self._meanwhile()
            pause = max(_LOOK_SECONDS, _SHARE * (time.monotonic() - began))

    def _begin(self, source: str, ask: Callable[[], T]) -> Future[T]:
        answer: Future[T] = Future()
        began = time.monotonic()
        if began >= self._until:
            return answer

        def run() -> None:
            try:
                answer.set_result(ask())
            except BaseException as error:  # noqa: BLE001 - told to whoever asked
                answer.set_exception(error)
            self._took[source] = time.monotonic() - began

        Thread(target=run, name=f"asking {source}", daemon=True).start()
        return answer

    def _late(self, source: str, began: float) -> Unknown:
        self._took.setdefault(source, time.monotonic() - began)
        took = dict(self._took)
        longest = max(took, key=took.__getitem__)
        return Unknown(
            unknown=f"{source} was not read within the {self._seconds:g} s that everything that "
            f"is read has together; {longest} took {took[longest]:.0f} s of them"
        )
