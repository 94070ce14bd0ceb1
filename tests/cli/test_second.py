"""Two processes that replay a history, each its own side."""

from multiprocessing.connection import Pipe

import pytest

from fleet.cli.second import Receiver, Sender, second_process
from fleet.errors import FleetError
from fleet.model.facts import Unknown

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
