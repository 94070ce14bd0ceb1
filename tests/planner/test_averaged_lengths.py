"""Requests of one group count as equally long: nothing is claimed that depends on the length."""

import pytest

from fleet.model.facts import Request, Worker, World
from fleet.model.plan import Optimum
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from fleet.words import figures as words
from tests.builders import a_pool, a_request, a_sim_fleet, a_sim_world, a_worker, ago

SHORT, LONG = 900, 9_000
CHEAP, DEAR = {"machine": "ccx33", "max": 1}, {"machine": "ccx63", "max": 1}
"""One machine of each, so that it matters which request gets it."""
BY_HOUR = {"desk": {"kind": "sim", "billing": {"increment": "1h"}}}


def builds(*lengths: int | None, waited: tuple[int, ...] = ()) -> tuple[Request, ...]:
    return tuple(
        a_request(
            id=f"{number}",
            expected_seconds=length,
            pending_since=ago(minutes=waited[number] if waited else 5),
        )
        for number, length in enumerate(lengths)
    )


def a_fleet_of(*pools: dict[str, object], **more: object) -> Fleet:
    named = ("builders", "others")
    made = {
        name: a_pool(provider="desk", **keys) for name, keys in zip(named, pools, strict=False)
    }
    return a_sim_fleet(pools=made, **more)


def optimum_of(fleet: Fleet, requests: tuple[Request, ...], *workers: Worker) -> Optimum:
    world: World = a_sim_world(*workers, requests=requests)
    plan = reconcile(fleet, world)
    assert plan.optimum is not None
    assert ("(cheapest choice)" in " ".join(words.new_machines(plan))) == plan.optimum.is_optimal
    return plan.optimum


UNPROVEN = {
    "two prices": (a_fleet_of(CHEAP, DEAR), builds(SHORT, LONG)),
    "two prices by the hour": (a_fleet_of(CHEAP, DEAR, providers=BY_HOUR), builds(SHORT, LONG)),
    "one duration unknown": (a_fleet_of(CHEAP, DEAR), builds(LONG, None)),
    "one is not served": (a_fleet_of(CHEAP), builds(SHORT, LONG)),
    "shared machines": (
        a_fleet_of({"max": 2, "target_wait": "2h"}, {"max": 2, "target_wait": "1h"}),
        builds(SHORT, LONG, SHORT),
    ),
    "equally long, but one has waited for long": (
        a_fleet_of({"max": 2, "target_wait": "2h"}, {"max": 2, "target_wait": "25m"}),
        builds(SHORT, SHORT, waited=(20, 30)),
    ),
    "a bill of an average length": (
        a_fleet_of({"machine": "ccx33", "max": 70}, providers=BY_HOUR),
        builds(*(600 + 60 * number for number in range(70))),
    ),
}


@pytest.mark.parametrize("case", UNPROVEN)
def test_no_optimum_is_claimed_when_lengths_were_averaged(case: str) -> None:
    optimum = optimum_of(*UNPROVEN[case])

    assert optimum.bound == 0
    assert optimum.gap == 1
    assert optimum.because
    assert optimum.model_bound > 0
    assert not optimum.is_optimal


def test_gap_is_1_when_free_worker_fits_one_of_two_lengths() -> None:
    fleet = a_fleet_of({"machine": "ccx33", "max": 2})

    assert optimum_of(fleet, builds(SHORT, LONG), a_worker()).gap == 1


PROVEN = {
    "equally long": (a_fleet_of(CHEAP, DEAR), builds(LONG, LONG)),
    "one place": (a_fleet_of({"machine": "ccx33", "max": 2}), builds(SHORT, LONG)),
    "places of one price": (a_fleet_of(CHEAP, CHEAP), builds(SHORT, LONG)),
    "one place by the hour": (
        a_fleet_of({"machine": "ccx33", "max": 2}, providers=BY_HOUR),
        builds(SHORT, LONG),
    ),
}


@pytest.mark.parametrize("case", PROVEN)
def test_optimum_is_claimed_when_lengths_change_nothing(case: str) -> None:
    optimum = optimum_of(*PROVEN[case])

    assert optimum.is_optimal
    assert optimum.bound == optimum.model_bound == optimum.cost
