"""The answer for everything that waits: groups of requests that fare the same."""

import pytest

from fleet.explain.case import Case
from fleet.explain.request import (
    BY_CREATE,
    BY_UNSEEN,
    MOST_REPLANS,
    OutcomeGroup,
    by_outcome,
    explain_every,
    explain_requests,
    waits_of,
)
from fleet.explain.values import Explanation
from fleet.model.facts import World
from fleet.schema.model import Fleet
from tests.builders import a_pool, a_reading, a_request, a_sim_fleet, a_sim_world
from tests.builders.deciding import an_unseen_world
from tests.builders.queue_worlds import planned
from tests.builders.sentences import tells
from tests.rigs.golden_plans import FOLDERS, load_fleet, load_world, plan_of


def explained(
    fleet: Fleet, world: World, *, most: int = MOST_REPLANS
) -> list[tuple[OutcomeGroup, list[Explanation]]]:
    """Return each group of requests, with their explanations."""
    case = Case(fleet, world, planned(fleet, world))
    answers = {each.name: each for each in explain_every(case, most=most).requests}
    return [(each, [answers[key] for key in each.keys]) for each in by_outcome(case)]


@pytest.mark.slow
def test_thousand_requests_form_few_groups() -> None:
    world = a_sim_world(
        queues={"debian": a_reading(*(a_request(id=str(n)) for n in range(1000)), workers=None)}
    )
    fleet = a_sim_fleet()

    (created, first), (waiting, others) = explained(fleet, world)

    assert (created.verdict, len(first), len(others)) == (BY_CREATE, 3, 997)
    assert tells(waiting.verdict, "builders", "workers.max", "3")


def test_group_has_suggestion_for_its_first_request() -> None:
    world = a_sim_world(requests=tuple(a_request(id=str(n)) for n in range(1, 7)))
    fleet = a_sim_fleet()

    (_, served), (_, waits) = explained(fleet, world)

    assert served[0].suggestions == ()
    (change,) = waits[0].suggestions[0].changes
    assert (change.path, change.new) == (("pools", "builders", "workers", "max"), "4")
    assert [answer.like for answer in waits] == ["", "debian/4", "debian/4"]


def test_group_beyond_plan_limit_names_explain_command() -> None:
    requests = tuple(a_request(id=str(n), required=(f"gpu{n}",)) for n in range(1, 13))
    world = a_sim_world(requests=requests)
    fleet = a_sim_fleet()

    firsts = [each[0] for _, each in explained(fleet, world, most=8)]

    assert firsts[0].suggestions
    assert firsts[11].suggestions == ()
    (step,) = firsts[11].next_steps
    assert tells(step, "fleet explain request debian/12")


def test_replanned_runs_are_shared_by_groups() -> None:
    throttle = {"throttle": {"create": {"count": 1}}}
    pools = {"builders": a_pool(provider="desk", max=9, provides=["b", "c", "d", "e", "f"])}
    fleet = a_sim_fleet(guards=throttle, pools=pools)
    requests = [a_request(id=tag, required=(tag,)) for tag in ("b", "c", "d", "e", "f")]
    world = a_sim_world(requests=(a_request(), *requests))

    firsts = [each[0] for _, each in explained(fleet, world, most=8)]

    waits = [each.suggestions[0].wait for each in firsts[1:]]
    assert [wait.runs for wait in waits if wait] == [1, 2, 3, 4, 5]


def test_request_on_unseen_workers_has_its_own_outcome() -> None:
    fleet, world = a_sim_fleet(), an_unseen_world()

    ((group, _),) = explained(fleet, world)

    assert group.verdict == BY_UNSEEN


GOLDEN = {each.name: each for each in FOLDERS}
SHARED_WAITS = (
    "a-dead-image-is-not-booted-again",
    "each-team-s-tickets-end-where-its-budget-of-money-or-machine-hours-does",
    "machines-in-dollars-and-a-budget-in-euros-count-at-the-stated-rate",
)
"""Golden plans in which later requests of a group also wait for runs or for a time."""


@pytest.mark.parametrize("name", SHARED_WAITS)
def test_request_starts_at_the_same_time_in_each_explanation(name: str) -> None:
    fleet, world = load_fleet(GOLDEN[name]), load_world(GOLDEN[name])
    case = Case(fleet, world, plan_of(GOLDEN[name]))
    groups = [each for each in by_outcome(case) if not each.is_served and each.keys[1:]]
    keys = [key for group in groups for key in (group.keys[1], group.keys[-1])]

    every = {each.name: each for each in explain_every(case).requests}
    pages = waits_of(case).explained

    assert keys
    for key in keys:
        (alone,) = explain_requests(Case(fleet, world, case.plan), {key})
        known = {(e.expected, e.assumed, e.finish) for e in (alone, every[key], pages[key])}
        assert len(known) == 1, key


def test_runs_that_change_nothing_use_no_trial_plans() -> None:
    folder = GOLDEN[
        "workers-whose-machines-nobody-sees-any-more-are-refused-above-the-delete-guard"
    ]
    case = Case(load_fleet(folder), load_world(folder), plan_of(folder))

    (answer,) = explain_every(case).requests

    assert [bool(each.changes) for each in answer.suggestions] == [False, True]
