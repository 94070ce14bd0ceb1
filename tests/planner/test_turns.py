"""The places by which owners are behind for machines that they had, and their turns."""

from datetime import datetime

import pytest

from fleet.planner.turns import Had, WaitingTicket, in_turn, places_behind
from tests.builders import NOW, ago

STEP = 600


def had(*minutes: int, owner: str = "ada", priority: int = 0) -> list[Had]:
    """Return machines that an owner gave back so many minutes ago."""
    return [Had(owner, priority, ago(minutes=each)) for each in minutes]


def turns(waiting: list[tuple[int, str, int, datetime]], ended: list[Had]) -> list[str]:
    """Return the owners of tickets in their order."""
    tickets = [WaitingTicket(*each) for each in waiting]
    ids = in_turn(tickets, (), STEP, NOW, places_behind(waiting, ended, STEP, NOW))
    owners = {ticket.id: ticket.owner for ticket in tickets}
    return [owners[number] for number in ids]


def test_owner_alone_is_behind_none() -> None:
    assert places_behind([(1, "ada", 0, ago(minutes=60))], had(5, 10), STEP, NOW) == {}


@pytest.mark.parametrize("waited", [5, 60, 600])
def test_new_owner_is_first_when_other_owner_was_served(waited: int) -> None:
    waiting = [(number, "ada", 0, ago(minutes=waited)) for number in range(1, 19)]
    ended = had(*range(2, waited), 0)

    assert turns([*waiting, (19, "ben", 0, ago(minutes=1))], ended)[0] == "ben"


def test_owner_is_first_when_it_was_not_served_for_long() -> None:
    waiting = [(1, "ada", 0, ago(minutes=60)), (2, "ben", 0, ago(minutes=1))]

    assert turns(waiting, had(70, 80, 90)) == ["ada", "ben"]


def test_higher_priority_is_not_behind_for_background_work() -> None:
    waiting = [(1, "ada", 1, ago(minutes=3)), (2, "ben", 0, ago(minutes=2))]

    assert turns(waiting, had(1, 1, 1)) == ["ada", "ben"]


def test_low_priority_is_not_behind_for_higher_ones_of_its_owner() -> None:
    waiting = [(1, "ada", -1, ago(minutes=60)), (2, "ben", -1, ago(minutes=1))]

    assert turns(waiting, had(*range(50), priority=0)) == ["ada", "ben"]


def test_oldest_ticket_of_an_owner_is_served_first() -> None:
    waiting = [
        (1, "ada", 0, ago(minutes=60)),
        (2, "ada", 0, ago(minutes=0)),
        (3, "ben", 0, ago(minutes=5)),
    ]
    tickets = [WaitingTicket(*each) for each in waiting]
    behind = places_behind(waiting, had(*range(1, 60)), STEP, NOW)

    order = in_turn(tickets, (), STEP, NOW, behind)

    assert order.index(1) < order.index(2)
    assert order[0] == 3
