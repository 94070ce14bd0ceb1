"""Two processes that replay a history, each its own side."""

from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.connection import Pipe

import pytest

from fleet.cli.second import Listener, Reader, Receiver, Sender, reading_process, second_process
from fleet.errors import FileUnreadable, FleetError
from fleet.explain.simulation.replay import Read, Told
from fleet.model.facts import Unknown
from tests.builders import NOW

MANY = 60_000


def test_the_waits_of_both_are_compared_and_neither_is_far_ahead() -> None:
    with second_process() as other:
        if isinstance(other, Sender):
            for nth in range(MANY):
                other.waited(str(nth), 1)
            other.end(Unknown(unknown="ended"))
        else:
            most = 0
            for nth in range(MANY):
                other.waited(str(nth), 2 - nth % 3)
                most = max(most, other.pairs.alone(1))
            found = other.found()

    assert isinstance(other, Receiver)
    assert found == Unknown(unknown="ended")
    assert most <= 20_001
    assert (other.pairs.worse, other.pairs.better) == (MANY / 3, MANY / 3)


def test_a_second_process_that_is_killed_is_an_error() -> None:
    receiving, sending = Pipe(duplex=False)
    sending.close()

    with receiving, pytest.raises(FleetError):
        Receiver(receiving).found()


def test_a_second_process_reads_for_the_first() -> None:
    expected = [Read(nth, NOW + timedelta(minutes=nth), 0) for nth in range(MANY)]

    with reading_process() as other:
        if isinstance(other, Reader):
            other.tell(iter(expected))
        else:
            told = [*other.told()]

    assert isinstance(other, Listener)
    assert told == expected


def test_what_the_second_process_cannot_read_is_an_error_of_the_first() -> None:
    def torn() -> Iterator[Told]:
        yield Read(1, NOW, 0)
        raise FileUnreadable("torn")

    with reading_process() as other:
        if isinstance(other, Reader):
            other.tell(torn())
        else:
            with pytest.raises(FileUnreadable, match="torn"):
                list(other.told())


def test_a_second_process_that_is_killed_while_it_reads_is_an_error() -> None:
    receiving, sending = Pipe(duplex=False)
    sending.close()

    with receiving, pytest.raises(FleetError):
        list(Listener(receiving).told())
