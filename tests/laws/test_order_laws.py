"""The order of no list of a world matters, unless `IN_ORDER` gives the reason why it does."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from fleet.guard import guard
from fleet.model.digests import world_digest
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.model.values import Value
from fleet.reconcile import reconcile
from tests.builders import a_sim_fleet
from tests.laws.strategies import IN_ORDER, shuffled, whole
from tests.rigs.golden_plans import FOLDERS, load_fleet, load_world

WHOLE: World = whole(World).altered(fleet="debian-ci")
Place = tuple[str, str]


def lists(value: object, place: Place = ("", "")) -> Iterator[Place]:
    """Yield the model and field of every list within a value."""
    match value:
        case Value():
            for name, part in value:
                yield from lists(part, (type(value).__name__, name))
        case dict():
            for part in value.values():
                yield from lists(part, place)
        case tuple() | list():
            yield place
            for part in value:
                yield from lists(part, place)


EVERY = sorted(set(lists(WHOLE)))


def reversed_at(value: object, wanted: Place, place: Place = ("", "")) -> object:
    """Return a value with its lists of one field in the opposite order."""
    match value:
        case Value():
            kind = type(value).__name__
            return {name: reversed_at(part, wanted, (kind, name)) for name, part in value}
        case dict():
            return {key: reversed_at(part, wanted, place) for key, part in value.items()}
        case tuple() | list():
            parts = [reversed_at(part, wanted, place) for part in value]
            return parts[::-1] if place == wanted else parts
    return value


def plan_of(world: World) -> Plan:
    fleet = a_sim_fleet()
    return guard(fleet, reconcile(fleet, world))


@pytest.mark.parametrize("place", EVERY, ids=".".join)
def test_order_of_list_changes_no_plan_unless_it_has_a_meaning(place: Place) -> None:
    other = World.model_validate(reversed_at(WHOLE, place))

    same = (world_digest(other), plan_of(other)) == (world_digest(WHOLE), plan_of(WHOLE))

    # What an order may mean need not change this plan, as in JSON of a queue.
    assert same or place in IN_ORDER


def test_every_exemption_is_a_list_of_the_world() -> None:
    assert set(EVERY) >= IN_ORDER.keys()
    assert len(EVERY) > len(IN_ORDER) + 30


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_order_of_no_list_changes_a_golden_plan(folder: Path) -> None:
    fleet, world = load_fleet(folder), load_world(folder)
    dice = Random(folder.name)  # noqa: S311 - hides nothing

    plan, *others = (
        guard(fleet, reconcile(fleet, each))
        for each in (world, shuffled(world), shuffled(world, dice))
    )

    assert {other.model_dump_json() for other in others} == {plan.model_dump_json()}
