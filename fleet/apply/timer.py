"""Provide clocks, pauses, and signals that stop an apply.

SIGINT (Ctrl-C) and SIGTERM stop an apply immediately if no change is in progress, otherwise after
the running steps. A second signal also interrupts the running steps.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import FrameType
from typing import TYPE_CHECKING

from fleet.errors import refusal
from fleet.model.facts import Listing, QueueReading, Unknown, World
from fleet.planner.ledger import periods
from fleet.schema.model import Fleet
from fleet.schema.units import write_duration, write_time

if TYPE_CHECKING:
    from fleet.state.store import Store

_MAX_SLEEP_SECONDS = 0.5


class Signals:
    """Waiter between runs that also handles stop signals."""

    def __init__(self) -> None:
        self._is_stop_requested = False
        self._changing = False
        self._cut: Callable[[], None] | None = None
        self.was_cut = False
        """True if a signal interrupted a running step."""

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Handle stop signals in the block; restore the earlier handlers after the block."""
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        for each in before:
            signal.signal(each, self._handle_signal)
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    @contextmanager
    def changing(self, cut: Callable[[], None] | None = None) -> Iterator[None]:
        """Defer stop signals to the end of the block.

        A second signal calls `cut`, which stops the block early and gracefully. Without `cut`, it
        interrupts the current operation.
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
        """Return True if a stop was requested."""
        return self._is_stop_requested

    def end_if_asked(self) -> None:
        """Raise KeyboardInterrupt if a stop was requested during a change."""
        if self._is_stop_requested:
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> bool:
        """Wait for these seconds; return False, immediately, if a stop is requested."""
        self._sleep(seconds, time.sleep)
        return not self._is_stop_requested

    def _sleep(self, seconds: float, doze: Callable[[float], bool | None]) -> None:
        """Wait for these seconds, until `doze` returns True, or until a stop is requested."""
        until = time.monotonic() + seconds
        while not self._is_stop_requested and (left := until - time.monotonic()) > 0:
            # A signal immediately before a sleep does not interrupt it, so sleeps are short.
            if doze(min(left, _MAX_SLEEP_SECONDS)):
                return

    def _handle_signal(self, _: int, __: FrameType | None) -> None:
        was_asked, self._is_stop_requested = self._is_stop_requested, True
        if self._changing and not was_asked:
            return
        if self._cut is None:
            raise KeyboardInterrupt
        self.was_cut = True
        self._cut()


_MAX_BURST = 5
"""Maximum runs without a pause between them, so that a rare wake-up starts a run immediately."""


class WakeableTimer(Signals):
    """A waiter that any thread can wake. Runs start `apart` seconds apart on average."""

    def __init__(self, apart: float) -> None:
        super().__init__()
        self._apart = apart
        self._woken = threading.Event()
        self._began = time.monotonic()
        self._due = self._began + apart
        """Start time of the next run if all runs had started `apart` seconds apart."""
        self._again = False

    def wake(self) -> None:
        """Start the next run as soon as the average permits."""
        self._woken.set()

    def look_again(self) -> None:
        """Start the next run `apart` seconds after this run, even without a wake-up."""
        self._again = True

    def wait(self, seconds: float) -> bool:
        """Wait for these seconds or until woken; return False if a stop was requested."""
        now = time.monotonic()
        if self._again:
            seconds = min(seconds, max(self._began + self._apart - now, 0))
        early = min(max(self._due - _MAX_BURST * self._apart - now, 0), seconds)
        self._sleep(early, time.sleep)
        self._sleep(seconds - early, self._woken.wait)
        # A wake-up after this line is for the run after the next run.
        self._woken.clear()
        self._again = False
        self._began = time.monotonic()
        self._due = max(self._due, self._began) + self._apart
        return not self.is_ending()


MAX_SKEW = timedelta(minutes=10)
"""Maximum tolerated difference of two clocks, because NTP keeps differences below seconds.

`fleet doctor` reports smaller differences before a run is refused."""
_MAX_PAUSE = timedelta(days=31)
"""Maximum plausible pause between runs; a wrong clock is more frequent than a longer pause."""
_MAX_RUNS_COMPARED = 10
"""Latest runs to compare a clock with; a few of them may have been refused for their clock."""
_LAST_RUN = "the last run of this fleet"


TRUST = "; if this clock is right, run `fleet apply --trust-clock` once"


def find_clock_faults(fleet: Fleet, store: "Store", world: World) -> tuple[str, ...]:
    """Return the reasons why an apply would refuse to run by this computer's clock."""
    faults = (
        *find_faults_at_start(store, world.time),
        *find_faults_of_world(fleet, store, world),
    )
    return tuple(dict.fromkeys(faults))


def find_faults_at_start(store: "Store", now: datetime) -> Iterator[str]:
    """Yield a fault per difference from the clocks of the store's server and earlier runs."""
    yield from find_store_skew(store, now)
    if odd := why_odd(store, now):
        yield odd


def find_faults_of_world(fleet: Fleet, store: "Store", world: World) -> Iterator[str]:
    """Yield a fault per difference from the clocks of servers, and from earlier records."""
    yield from find_server_skew(world)
    # The servers of queues and of the store may run on this computer, so their clocks are no
    # independent evidence. If a clock is behind, spent budgets would be available again.
    odd = _explain_early_clock(store, world.time)
    until = None if isinstance(world.ledger, Unknown) else world.ledger.charged_until
    # A run that reverts charges leaves the ledger charged until the end of its hour.
    most = max(world.time + MAX_SKEW, periods(fleet, world.time)[0].end)
    if not odd and until is not None and until > most:
        odd = _explain_clock_difference(world.time, until, "the last charge of the ledger")
    if odd:
        yield odd


def refuse_clock(faults: Iterable[str], fix: str = TRUST) -> None:
    """Raise PlanRefused for the first of these clock faults, if any."""
    for fault in faults:
        raise refusal(f"{fault}{fix}")


def find_store_skew(store: "Store", now: datetime) -> Iterator[str]:
    """Yield a fault if this clock and the store's server differ by more than MAX_SKEW."""
    theirs = store.server_time()
    if theirs is not None and abs(now - theirs) > MAX_SKEW:
        skew = write_duration(abs(now - theirs))
        ahead = "ahead of" if now > theirs else "behind"
        yield (
            f"this computer's clock says {write_time(now)}, {skew} {ahead} the server of "
            "state.store; correct the wrong one (`timedatectl set-ntp true`)"
        )


def find_server_skew(world: World) -> Iterator[str]:
    """Yield a fault if the clocks of all queues and providers differ from this computer."""
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


def why_odd(store: "Store", now: datetime) -> str:
    """Return why this clock may be wrong, judged by the last runs; empty if it is plausible."""
    if early := _explain_early_clock(store, now):
        return early
    # A run without a plan may have been refused because of its clock.
    runs = (run for run in store.last_runs(_MAX_RUNS_COMPARED) if run["plan"] or not run["ended"])
    began = [datetime.fromisoformat(run["started"]) for run in runs]
    last = max((each for each in began if each <= now + MAX_SKEW), default=now)
    return _explain_clock_difference(now, last, _LAST_RUN) if now > last + _MAX_PAUSE else ""


def _explain_early_clock(store: "Store", now: datetime) -> str:
    ended = (datetime.fromisoformat(run["ended"]) for run in store.last_runs(1, ended=True))
    last = max(ended, default=now)
    return _explain_clock_difference(now, last, _LAST_RUN) if now < last - MAX_SKEW else ""


def _explain_clock_difference(now: datetime, then: datetime, what: str) -> str:
    apart = f"{write_duration(abs(now - then))} {'before' if now < then else 'after'}"
    return (
        f"this computer's clock says {write_time(now)}, {apart} {what} ({write_time(then)}); "
        "compare `date -u`"
    )
