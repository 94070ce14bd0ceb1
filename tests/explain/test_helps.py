"""Edits of fleet.yaml after which each request of a group starts earlier."""

import pytest

from fleet.explain.case import Case
from fleet.explain.request import waits_of
from fleet.guard import guard
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_request, a_sim_fleet, a_sim_world, a_worker
from tests.builders.sentences import tells

MAX = ("pools", "builders", "workers", "max")


def a_fleet(most: int) -> Fleet:
    pools = {"builders": a_pool(provider="desk", max=most)}
    guards = {"throttle": {"create": {"share": "100%", "free_below": 50}}}
    return a_sim_fleet(pools=pools, guards=guards, durations={"any": "30m"})


def a_case(fleet: Fleet, requests: int) -> Case:
    world = a_sim_world(requests=tuple(a_request(id=str(n)) for n in range(1, requests + 1)))
    return Case(fleet, world, guard(fleet, reconcile(fleet, world)))


def raises(case: Case) -> dict[str, dict[tuple[str | int, ...], str]]:
    """Return, per waiting request, the new values of the keys in its suggestions."""
    return {
        key.removeprefix("debian/"): {c.path: c.new for s in each.suggestions for c in s.changes}
        for key, each in waits_of(case).explained.items()
    }


def minutes(fleet: Fleet, requests: int, number: int) -> float:
    start = a_case(fleet, requests).expected_start(f"debian/{number}")
    assert start is not None
    return (start - NOW).total_seconds() / 60


@pytest.mark.parametrize("number", [9, 12, 13, 16])
def test_request_has_the_smallest_raise_that_starts_it_earlier(number: int) -> None:
    found = raises(a_case(a_fleet(8), 16))[str(number)]

    assert found == {MAX: str(number)}
    assert minutes(a_fleet(8), 16, number) == 31.5
    assert minutes(a_fleet(number - 1), 16, number) == 31.5
    assert minutes(a_fleet(number), 16, number) == 1.5


def test_request_far_behind_has_a_smaller_raise_than_its_place() -> None:
    found = raises(a_case(a_fleet(2), 60))

    assert found["60"] == {MAX: "3"}
    assert (minutes(a_fleet(2), 60, 60), minutes(a_fleet(3), 60, 60)) == (871.5, 571.5)


def test_edits_of_guards_are_last_and_each_has_its_gain() -> None:
    pools = {"builders": a_pool(provider="desk", max=15)}
    answers = waits_of(a_case(a_sim_fleet(pools=pools, durations={"any": "30m"}), 40)).explained

    for number in range(26, 31):
        found = answers[f"debian/{number}"].suggestions
        assert [each.changes[0].path[0] for each in found] == ["pools", "guards", "guards"]
        assert [each.is_minor for each in found] == [False, True, True]
        assert all(tells(each.brief, "starts about 08:31, 10 min earlier") for each in found)


def test_edit_that_lets_an_earlier_run_serve_a_request_has_its_gain() -> None:
    pool = a_pool(provider="desk", max=9, max_starting=2)
    fleet = a_sim_fleet(pools={"builders": pool})

    answers = waits_of(a_case(fleet, 5)).explained

    starts = [answers[f"debian/{n}"].expected for n in (3, 4, 5)]
    assert [f"{each:%H:%M}" for each in starts if each] == ["08:11", "08:11", "08:21"]
    (edit,) = (each for each in answers["debian/5"].suggestions if each.changes)
    assert tells(edit.brief, "max_starting from 2 to 3: starts about 08:11, 10 min earlier")


def test_request_at_a_limit_has_also_edits_that_gain_much_more() -> None:
    large = {"on_demand": True, "exclusive": True, "limits": {"per": {"submitter": 1}}}
    pools = {"builders": a_pool(provider="desk", max=2, provides=["large"])}
    fleet = a_sim_fleet(pools=pools, tags={"large": large})
    work = {"task": "sbuild", "required": ("large",)}
    worker = a_worker(busy=True, provides=("large",), running="88", work=work)
    own = {"requester": "ada", "required": ("large",), "expected_seconds": 36_000}
    world = a_sim_world(worker, requests=(a_request(id="1", **own), a_request(id="2", **own)))

    case = Case(fleet, world, guard(fleet, reconcile(fleet, world)))
    found = waits_of(case).explained["debian/2"].suggestions

    limit = ("tags", "large", "limits", "per", "submitter")
    changes = [{each.path: each.new for each in one.changes} for one in found]
    assert changes == [{limit: "2"}, {MAX: "3", limit: "3"}]
    assert tells(found[0].brief, "18:01, 54 min earlier")
    assert tells(found[1].brief, "08:01, 10 h 54 min earlier")


@pytest.mark.slow
def test_search_for_many_requests_tries_few_figures() -> None:
    case = a_case(a_fleet(150), 400)

    found, (said,) = raises(case), waits_of(case).explained["debian/160"].next_steps

    helped = {number: new for number, new in found.items() if new}
    assert helped.keys() >= {str(number) for number in (*range(51, 151), *range(201, 401))}
    assert len({new[MAX] for new in helped.values() if MAX in new}) <= 8
    assert tells(said, "None", "pools.builders.workers.max from 150 to", "Not all edits")
