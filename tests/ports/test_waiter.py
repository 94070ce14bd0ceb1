"""The contract of the port Waiter, over the fake and the one that hears signals."""

import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from fleet.commands.signals import Signals
from fleet.ports import Waiter
from tests.fakes_engine import FixedClock
from tests.fakes_waiter import FakeWaiter


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


@pytest.fixture(params=["fake", "signals"])
def asked(request: pytest.FixtureRequest, fake: FakeWaiter, signals: Signals) -> Waiter:
    """Return a waiter that waited once, and then somebody asked it to end."""
    waiter: Waiter = fake if request.param == "fake" else signals
    assert waiter.wait(0)
    ask_to_end(signals, signal.SIGTERM)
    return waiter


def test_a_waiter_that_was_asked_to_end_waits_no_more(asked: Waiter) -> None:
    assert not asked.wait(3600)
    assert not asked.wait(3600)


# only the one that hears signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_at_once_while_nothing_is_changed(
    signals: Signals, number: signal.Signals
) -> None:
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)

    assert not signals.was_cut


def test_a_signal_in_a_step_is_heard_when_the_step_is_done(signals: Signals) -> None:
    ask_to_end(signals, signal.SIGINT)

    assert signals.is_ending()
    assert not signals.was_cut


def test_a_second_signal_in_a_step_interrupts_it(signals: Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        ask_to_end(signals, signal.SIGINT, times=2)

    assert signals.was_cut


def test_a_step_that_fails_holds_no_later_signal_back(signals: Signals) -> None:
    with pytest.raises(ValueError, match="failed"), signals.changing():
        raise ValueError("failed")

    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_afterwards_signals_do_what_they_did_before() -> None:
    before = signal.getsignal(signal.SIGTERM)

    with Signals().heard():
        pass

    assert signal.getsignal(signal.SIGTERM) is before
