"""A written waiter: it waits no time and moves a clock instead."""

from collections.abc import Callable
from datetime import timedelta

from tests.fakes.engine import FixedClock


class FakeWaiter:
    """Notes how long it was to wait; `asked_after` of these waits somebody asks to end."""

    def __init__(self, clock: FixedClock, *, asked_after: int | None = None) -> None:
        self.waits: list[float] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens while it waits."""
        self._clock = clock
        self._asked_after = asked_after

    def wait(self, seconds: float) -> bool:
        """Have that time pass at once; False where somebody asks to end."""
        if len(self.waits) == self._asked_after:
            return False
        self.waits.append(seconds)
        self._clock.moment += timedelta(seconds=seconds)
        self.meanwhile()
        return True
