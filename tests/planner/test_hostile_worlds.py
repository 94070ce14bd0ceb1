"""What an odd recording may not do: end in a traceback, or in a digest that misleads."""

import pytest
from pydantic import ValidationError

from fleet.model.digests import world_digest
from fleet.model.facts import Request
from fleet.reconcile import reconcile
from tests.builders import a_reading, a_request, a_sim_fleet, a_sim_world
from tests.builders.explaining import explain_request


def test_id_of_ten_thousand_digits_is_accepted() -> None:
    world = a_sim_world(requests=(a_request(id="9" * 10_000),))

    assert len(reconcile(a_sim_fleet(), world).actions) == 1


def test_task_data_of_any_shape_has_a_digest() -> None:
    odd = {"groups": [1, "a", {"b": None}], "requests": [[], {}]}
    world = a_sim_world(requests=(a_request(task_data=odd),))

    assert len(world_digest(world)) == 64


def test_request_group_of_impossible_size_is_refused() -> None:
    with pytest.raises(ValidationError, match="count"):
        Request(id="1", count=10**9)


def explained(name: str, *ids: str, count: int = 1) -> tuple[str, tuple[str, ...]] | None:
    requests = tuple(a_request(id=each, count=count) for each in ids)
    fleet, world = a_sim_fleet(), a_sim_world(requests=requests)
    explanation = explain_request(fleet, world, reconcile(fleet, world), name)
    return (explanation.name, explanation.facts) if explanation else None


def test_complete_name_precedes_similar_id() -> None:
    found = explained("debian/1", "debian/1", "1")

    assert found is not None
    assert found[0] == "debian/1"


def test_group_is_found_by_its_id_alone() -> None:
    found = explained("7", "7", count=3)

    assert found is not None
    assert found[0] == "debian/7#1"
    assert found[1][0].startswith("task sbuild")


def test_request_that_is_listed_twice_is_served_once() -> None:
    reading = a_reading(a_request(id="1"), a_request(id="1", priority=5), workers=None)

    plan = reconcile(a_sim_fleet(), a_sim_world(queues={"debian": reading}))

    assert [request for s in plan.signatures for request in s.requests] == ["debian/1"]
    assert len(plan.actions) == 1
