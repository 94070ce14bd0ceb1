"""Clocks, sleeping, and signals that stop an apply.

SIGINT (Ctrl-C) and SIGTERM end it at once while nothing is being changed, else after the steps
that were begun. A second one in the middle of a step cuts that short too.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import FrameType

from fleet.errors import refusal
from fleet.model.facts import Listing, QueueReading, Unknown, World
from fleet.planner.ledger import periods
from fleet.ports import Store
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration, write_time

_LONGEST_SLEEP = 0.5


class Signals:
    """Waits between runs, and hears when to end."""

    def __init__(self) -> None:
        self._asked = False
        self._changing = False
        self._cut: Callable[[], None] | None = None
        self.was_cut = False
        """Whether a step was interrupted in its middle."""

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen; afterwards signals do again what they did before."""
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        for each in before:
            signal.signal(each, self._hear)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def changing(self, cut: Callable[[], None] | None = None) -> Iterator[None]:
        """Let what is done in here come to the end of its step.

        `cut` ends it early, in good order, where somebody asks a second time; without it that
        interrupts whatever is being done.
        """
        self._changing, self._cut = True, cut
        try:
            yield
        except KeyboardInterrupt:
            self.was_cut = True
            raise
        finally:
            self._changing, self._cut = False, None

    def is_ending(self) -> bool:
        """Say whether somebody asked to end."""
        return self._asked

    def end_if_asked(self) -> None:
        """Raise KeyboardInterrupt where somebody asked to end while something was changed."""
        if self._asked:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> bool:
        """Wait that long; False, at once, where somebody asked to end before."""
        self._doze(seconds, time.sleep)
        return not self._asked

    def _doze(self, seconds: float, doze: Callable[[float], bool | None]) -> None:
        """Doze that long, until that says true, or until somebody asks to end."""
        until = time.monotonic() + seconds
        while not self._asked and (left := until - time.monotonic()) > 0:
            # A signal that arrives right before a sleep does not end it: none is long.
            if doze(min(left, _LONGEST_SLEEP)):
                return

    def _hear(self, _: int, __: FrameType | None) -> None:
        was_asked, self._asked = self._asked, True
        if self._changing and not was_asked:
            return
        if self._cut is None:
            raise KeyboardInterrupt
        self.was_cut = True
        self._cut()


_IN_A_ROW = 5
"""How many runs may follow each other at once: a rare wake-up does not wait."""


class WakeableTimer(Signals):
    """A waiter that is woken, from any thread; runs begin `apart` seconds apart on average."""

    def __init__(self, apart: float) -> None:
        super().__init__()
        self._apart = apart
        self._woken = threading.Event()
        self._began = time.monotonic()
        self._due = self._began + apart
        """When the next run would begin if all of them had kept apart."""
        self._again = False

    def wake(self) -> None:
        """Have the next run begin as soon as it may."""
        self._woken.set()

    def look_again(self) -> None:
        """Have the next run begin so much apart from this one, without a wake-up."""
        self._again = True

    def wait(self, seconds: float) -> bool:
        """Wait that long or until woken; False, at once, where somebody asked to end."""
        now = time.monotonic()
        if self._again:
            seconds = min(seconds, max(self._began + self._apart - now, 0))
        early = min(max(self._due - _IN_A_ROW * self._apart - now, 0), seconds)
        self._doze(early, time.sleep)
        self._doze(seconds - early, self._woken.wait)
        # What wakes it from here on is for the run after the next.
        self._woken.clear()
        self._again = False
        self._began = time.monotonic()
        self._due = max(self._due, self._began) + self._apart
        return not self.is_ending()


MAX_SKEW = timedelta(minutes=10)
"""Difference of clocks with which a run goes on: fleets survive minutes, and NTP keeps seconds.

`fleet doctor` reports much less, before runs are refused.
"""
_MOST_LEAP = timedelta(days=31)
"""A longer pause between runs is rarer than a wrong clock."""
_RUNS = 10
"""Latest runs that a clock is compared with: a few may have been refused for their clock."""
_LAST_RUN = "the last run of this fleet"


TRUST = "; if this clock is right, run `fleet apply --trust-clock` once"


def find_clock_faults(fleet: Fleet, store: Store, world: World) -> tuple[str, ...]:
    """Return the reasons for which an apply at the time of a world refuses its clock."""
    faults = (
        *find_faults_at_start(store, world.time),
        *find_faults_of_world(fleet, store, world),
    )
    return tuple(dict.fromkeys(faults))


def find_faults_at_start(store: Store, now: datetime) -> Iterator[str]:
    """Yield how the clock differs from the store's server and from the runs before."""
    yield from find_store_skew(store, now)
    if odd := why_odd(store, now):
        yield odd


def find_faults_of_world(fleet: Fleet, store: Store, world: World) -> Iterator[str]:
    """Yield how the clock differs from those of queues and providers, and from earlier records."""
    yield from find_server_skew(world)
    yield from _find_later_records(fleet, store, world)


def refuse_clock(faults: Iterable[str], fix: str = TRUST) -> None:
    """Raise PlanRefused for the first of these faults of the clock."""
    for fault in faults:
        raise refusal(f"{fault}{fix}")


def find_store_skew(store: Store, now: datetime) -> Iterator[str]:
    """Yield a difference of more than MAX_SKEW from the clock of the store's server."""
    theirs = store.server_time()
    if theirs is not None and abs(now - theirs) > MAX_SKEW:
        skew = write_duration(abs(now - theirs))
        ahead = "ahead of" if now > theirs else "behind"
        yield (
            f"this computer's clock says {write_time(now)}, {skew} {ahead} the server of "
            "state.store; correct the wrong one (`timedatectl set-ntp true`)"
        )


def find_server_skew(world: World) -> Iterator[str]:
    """Yield a fault if every queue and provider that has a clock differs from this computer."""
    told = {
        f"{kind} {name}": each.clock_ahead
        for kind, readings in (("queue", world.queues), ("provider", world.providers))
        for name, each in readings.items()
        if isinstance(each, QueueReading | Listing) and each.clock_ahead is not None
    }
    if told and min(map(abs, told.values())) > MAX_SKEW / timedelta(minutes=1):
        name, minutes = min(told.items(), key=lambda each: abs(each[1]))
        skew = write_duration(abs(minutes) * 60)
        yield (
            f"this computer's clock says {write_time(world.time)}, "
            f"{skew} {'behind' if minutes > 0 else 'ahead of'} the server of {name}, and no "
            "other server agrees with it; correct the wrong one (`timedatectl set-ntp true`)"
        )


def why_odd(store: Store, now: datetime) -> str:
    """Return why this computer's clock may be wrong, by the last run; empty: no reason."""
    return _why_behind(store, now) or _why_leapt(store, now)


def _find_later_records(fleet: Fleet, store: Store, world: World) -> Iterator[str]:
    """Yield a fault if earlier runs or the ledger were recorded later than this world.

    The server of a queue or of the store may run on this computer, so its clock proves nothing
    against these. Planned by a clock that is behind, spent budgets would be available again.
    """
    odd = _why_behind(store, world.time)
    until = None if isinstance(world.ledger, Unknown) else world.ledger.charged_until
    # A run that reverts charges leaves the ledger charged to the end of its hour.
    most = max(world.time + MAX_SKEW, periods(fleet, world.time)[0].end)
    if not odd and until is not None and until > most:
        odd = _why_odd(world.time, until, "the end of what the ledger was charged for")
    if odd:
        yield odd


def _why_behind(store: Store, now: datetime) -> str:
    ended = (datetime.fromisoformat(run["ended"]) for run in store.ended_runs(1))
    last = max(ended, default=now)
    return _why_odd(now, last, _LAST_RUN) if now < last - MAX_SKEW else ""


def _why_leapt(store: Store, now: datetime) -> str:
    # A run without a plan may have been refused because its clock was wrong.
    runs = (run for run in store.last_runs(_RUNS) if run["plan"] or not run["ended"])
    began = [datetime.fromisoformat(run["started"]) for run in runs]
    last = max((each for each in began if each <= now + MAX_SKEW), default=now)
    return _why_odd(now, last, _LAST_RUN) if now > last + _MOST_LEAP else ""


def _why_odd(now: datetime, then: datetime, what: str) -> str:
    apart = f"{write_duration(abs(now - then))} {'before' if now < then else 'after'}"
    return (
        f"this computer's clock says {write_time(now)}, {apart} {what} ({write_time(then)}); "
        "compare `date -u`"
    )
