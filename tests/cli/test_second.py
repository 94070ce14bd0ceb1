"""Processes that replay a history, each its own side, and one that reads it."""

from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Pipe

import pytest

from fleet.cli.second import Listener, Reader, Receiver, Sender, processes
from fleet.errors import FileUnreadable, FleetError
from fleet.explain.simulation.replay import Read, Told
from fleet.model.facts import Unknown
from tests.builders import NOW

MANY = 60_000
FEW = 4_000
EVENTS = [Read(nth, NOW + timedelta(minutes=nth), 0) for nth in range(MANY)]


def torn() -> Iterator[Told]:
    yield Read(1, NOW, 0)
    raise FileUnreadable("torn")


def test_both_sides_are_told_the_same_and_neither_is_far_ahead() -> None:
    with processes(compared=True) as other:
        if isinstance(other, Reader):
            other.tell(iter(EVENTS))
        elif isinstance(other, Sender):
            for nth, _ in enumerate(other.told()):
                other.waited(str(nth), 1)
            other.end(Unknown(unknown="ended"))
        else:
            assert isinstance(other, Receiver)
            told = []
            for nth, event in enumerate(other.told()):
                told.append(event)
                other.waited(str(nth), 2 - nth % 3)
                assert other.pairs.worse + other.pairs.better >= (nth - FEW) * 2 // 3
            found = other.found()

    assert isinstance(other, Receiver)
    assert told == EVENTS
    assert found == Unknown(unknown="ended")
    assert (other.pairs.worse, other.pairs.better) == (MANY / 3, MANY / 3)


def test_a_second_process_that_is_killed_is_an_error() -> None:
    receiving, sending = Pipe(duplex=False)
    sending.close()

    with receiving, pytest.raises(FleetError):
        Receiver(receiving).found()


def test_a_second_process_reads_for_the_first() -> None:
    with processes(compared=False) as other:
        if isinstance(other, Reader):
            other.tell(iter(EVENTS))
        else:
            assert isinstance(other, Listener)
            told = [*other.told()]

    assert isinstance(other, Listener)
    assert told == EVENTS


@pytest.mark.parametrize("compared", [False, True])
def test_what_the_second_process_cannot_read_is_an_error_of_the_first(*, compared: bool) -> None:
    with processes(compared=compared) as other:
        if isinstance(other, Reader):
            other.tell(torn())
        elif isinstance(other, Sender):
            list(other.told())
        else:
            with pytest.raises(FileUnreadable, match="torn"):
                list(other.told())


def test_what_goes_wrong_in_a_second_process_is_an_error_of_the_first() -> None:
    with processes(compared=True) as other:
        if isinstance(other, Reader):
            other.tell(iter(EVENTS))
        elif isinstance(other, Sender):
            raise KeyError("pool")
        else:
            with pytest.raises(FleetError, match="pool"):
                list(other.told())


def test_a_second_process_that_is_killed_while_it_reads_is_an_error() -> None:
    receiving, sending = Pipe(duplex=False)
    sending.close()

    with receiving, pytest.raises(FleetError):
        list(Listener(receiving).told())
