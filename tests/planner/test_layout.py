"""What allocation weighs of machines and requests: money, time, age, and classes."""

from collections.abc import Iterable
from decimal import Decimal

import pytest

from fleet.model.facts import Request, World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, ago
from tests.builders.budgeting import HOUR, MACHINE, TAIL, a_budgeted_fleet, a_spent_world

ONE_BUILD = 11
"""Machine hours of a budget in which one build of ten hours fits, or two of an hour."""


def waiting(*requests: Request) -> World:
    return a_sim_world(requests=requests)


def served(plan: Plan) -> list[str]:
    return sorted(key for signature in plan.signatures for key in signature.by_create)


# money


# time


# age and class: a budget serves one long build or two short ones, which are more


def one_long_two_short(old: float, young: float) -> Plan:
    """Return the plan where one long build waits for so many minutes, and two short ones."""
    fleet = a_budgeted_fleet(budgets={"all": {"machine_hours_per_day": ONE_BUILD}})
    long = a_request(id="1", expected_seconds=10 * HOUR, pending_since=ago(minutes=old))
    short = [
        a_request(id=str(number), expected_seconds=HOUR, pending_since=ago(minutes=young))
        for number in (2, 3)
    ]
    return reconcile(fleet, a_spent_world(requests=(long, *short)))


@pytest.mark.parametrize(
    ("old", "young", "first"),
    [
        (9.9, 0, "short"),
        (10, 9.9, "long"),
        (19.9, 10, "short"),
        (20, 19.9, "long"),
        (39.9, 20, "short"),
        (40, 39.9, "long"),
        (-5, 5, "short"),
    ],
)
def test_request_waiting_twice_as_long_is_served_first(
    old: float, young: float, first: str
) -> None:
    keys = ["debian/1"] if first == "long" else ["debian/2", "debian/3"]

    assert served(one_long_two_short(old, young)) == keys


@pytest.mark.parametrize(
    ("tags", "first"),
    [
        ({}, "debian/2"),
        ({"a": {"priority": "high"}}, "debian/1"),
        ({"a": {"priority": "low"}}, "debian/2"),
        ({"b": {"priority": "high"}}, "debian/2"),
        ({"b": {"priority": "low"}}, "debian/1"),
        ({"a": {"priority": "high"}, "*": {"priority": "low"}}, "debian/2"),
        ({"a": {"priority": "normal"}, "b": {"priority": "low"}}, "debian/1"),
        ({"a": {"exclusive": False}, "b": {}}, "debian/2"),
    ],
)
def test_class_of_tag_precedes_priority_of_queue(tags: dict[str, object], first: str) -> None:
    pool = a_pool(provider="desk", machine=MACHINE, provides=["a", "b"], max=1)
    fleet = a_sim_fleet(pools={"builders": pool}, tags=tags)
    one = a_request(id="1", required=("a",), priority=0)
    two = a_request(id="2", required=("b",), priority=5)

    assert served(reconcile(fleet, waiting(one, two))) == [first]


# lengths


def planned_seconds(lengths: Iterable[int]) -> Decimal:
    """Return the machine time that a budget plans for the work of builds of these lengths."""
    fleet = a_budgeted_fleet(
        budgets={"debian": {"scope": "debian", "machine_hours_per_day": 1000}}, pool={"max": 99}
    )
    requests = [
        a_request(id=str(number), expected_seconds=length) for number, length in enumerate(lengths)
    ]
    today, *_ = reconcile(fleet, a_spent_world(requests=tuple(requests))).budgets
    return (today.planned - len(requests) * TAIL) * HOUR


def test_budget_uses_exact_durations_when_at_most_64_differ() -> None:
    lengths = range(100, 164)

    assert planned_seconds(lengths) == pytest.approx(sum(lengths), abs=1)


def test_budget_rounds_up_durations_when_more_than_64_differ() -> None:
    lengths = [1, 2, 3, 5, 6, 7, 96, 97, *range(200, 260)]
    rounded = [1, 2, 3, 6, 6, 8, 96, 128, *(256 for _ in range(57)), *(384 for _ in range(3))]

    assert planned_seconds(lengths) == pytest.approx(sum(rounded), abs=1)
