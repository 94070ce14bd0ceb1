"""The contract of the port Waiter, over the fake and the one that hears signals."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from fleet.apply.timer import Signals, WakeableTimer
from fleet.ports import Waiter
from tests.fakes.engine import FixedClock
from tests.fakes.waiter import FakeWaiter


@pytest.fixture
def signals() -> Iterator[Signals]:
    """Return what hears the signals of this process while the test runs."""
    heard = Signals()
    with heard.heard():
        yield heard


@pytest.fixture
def fake() -> FakeWaiter:
    """Return a fake that somebody asks to end at its second wait."""
    return FakeWaiter(FixedClock(datetime(2026, 11, 21, tzinfo=UTC)), asked_after=1)


def ask_to_end(signals: Signals, number: signal.Signals, times: int = 1) -> None:
    with signals.changing():
        for _ in range(times):
            os.kill(os.getpid(), number)


@pytest.fixture
def bell() -> Iterator[WakeableTimer]:
    """Return what can be rung, whose runs may begin at once, while the test runs."""
    heard = WakeableTimer(0)
    with heard.heard():
        yield heard


@pytest.fixture(params=["fake", "signals", "bell"])
def asked(request: pytest.FixtureRequest) -> Waiter:
    """Return a waiter that waited once, and then somebody asked it to end."""
    waiter: Waiter = request.getfixturevalue(request.param)
    assert waiter.wait(0)
    if isinstance(waiter, Signals):
        ask_to_end(waiter, signal.SIGTERM)
    return waiter


def test_wait_returns_immediately_after_request_to_end(asked: Waiter) -> None:
    assert not asked.wait(3600)
    assert not asked.wait(3600)


# only the one that hears signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("fails", [False, True], ids=["no step", "a failed step"])
def test_signal_interrupts_immediately_outside_a_change(
    number: signal.Signals, *, fails: bool
) -> None:
    before, signals = signal.getsignal(number), Signals()
    with signals.heard():
        if fails:
            with pytest.raises(ValueError, match="failed"), signals.changing():
                raise ValueError("failed")
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)

    assert not signals.was_cut
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("waiter", ["signals", "bell"])
def test_missed_signal_ends_the_wait_soon(waiter: str, request: pytest.FixtureRequest) -> None:
    # So does one that arrives between the look whether somebody asked, and the sleep.
    waiting: Signals = request.getfixturevalue(waiter)

    def wait_until_asked(threads: ThreadPoolExecutor) -> None:
        threads.submit(lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
        waiting.wait(60)

    began = time.monotonic()
    with ThreadPoolExecutor(1) as threads, pytest.raises(KeyboardInterrupt):
        wait_until_asked(threads)

    assert time.monotonic() - began < 30


# only the one that can be rung


def test_wake_from_another_thread_ends_the_wait(bell: WakeableTimer) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(bell.wait, 3600)
        bell.wake()

        assert waiting.result(60)


def test_runs_keep_average_distance_despite_many_wakes() -> None:
    began = time.monotonic()
    bell = WakeableTimer(0.05)

    for _ in range(7):
        bell.wake()
        bell.wait(3600)

    assert time.monotonic() - began >= 0.09


def test_second_signal_in_a_step_interrupts_it(signals: Signals) -> None:
    ask_to_end(signals, signal.SIGINT)
    assert (signals.is_ending(), signals.was_cut) == (True, False)

    with pytest.raises(KeyboardInterrupt):
        ask_to_end(signals, signal.SIGINT)

    assert signals.was_cut


def test_each_wake_ends_one_wait() -> None:
    patient, bell = WakeableTimer(3600), WakeableTimer(0)
    for _ in range(5):
        patient.wake()
        assert patient.wait(7200)
    bell.wake()
    bell.wait(3600)

    began = time.monotonic()
    assert bell.wait(0.05)
    assert time.monotonic() - began >= 0.04
    began = time.monotonic()
    again = WakeableTimer(0.05)
    again.look_again()
    assert again.wait(3600)
    assert time.monotonic() - began >= 0.04
