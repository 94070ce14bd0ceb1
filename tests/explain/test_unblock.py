"""What would get a waiting request served: each kind of suggestion in a sentence, and proven."""

from pathlib import Path

import pytest

from fleet.explain.case import Case as Run
from fleet.explain.edits import apply_edits, describe_edits
from fleet.explain.loosen import moves
from fleet.explain.search import (
    MOST_PLANS,
    Remedy,
    Replans,
    count_plans,
    edited,
    find_remedies,
)
from fleet.explain.values import Explanation, Suggestion
from fleet.guard.approvals import line_to_paste
from fleet.model.facts import Attempt, Demand, Ledger, World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile_unsealed
from fleet.schema.findings import yaml_key
from fleet.schema.model import Fleet
from tests.builders import (
    NOW,
    a_guard_result,
    a_plan,
    a_pool,
    a_reading,
    a_request,
    a_signature,
    a_sim_fleet,
    a_sim_world,
    a_worker,
    ago,
    an_attempt,
    an_unserved,
)
from tests.builders.decisions import Case, read_cases, world_of
from tests.builders.explaining import awaited, explain_request, is_served
from tests.builders.queue_worlds import planned

KEY = "debian/101"


def remedies(fleet: Fleet, world: World, key: str = KEY) -> list[Remedy]:
    """Return what is suggested, once it was done and found to work."""
    plan = planned(fleet, world)
    found = find_remedies(Run(fleet, world, plan), key, Replans())
    for remedy in found:
        after = edited(fleet, world, key, remedy.edits)
        wait = remedy.suggestion.wait
        if wait is not None:
            then = awaited(Run(*after, planned(*after)), wait, Replans())
            assert then is not None
            after = after[0], then
        assert is_served(planned(*after), key)
    return [*found]


def steps(fleet: Fleet, world: World, key: str = KEY) -> list[str]:
    return [format_steps(remedy.suggestion) for remedy in remedies(fleet, world, key)]


def format_steps(suggestion: Suggestion) -> str:
    """Return the edits, tags to ask for and what to wait for, from the values of a suggestion."""
    parts = [f"{yaml_key(each.path)}: {each.old} -> {each.new}" for each in suggestion.changes]
    parts += [f"ask {tag}" for tag in suggestion.asks]
    if wait := suggestion.wait:
        until = f"{wait.until:%H:%M}" if wait.until else "?"
        runs = [f"{wait.runs} runs"] if wait.runs else []
        parts.append(" ".join(["wait", *wait.workers, until, *runs]))
    return "; ".join(parts)


def pools(**builders: object) -> dict[str, object]:
    return {"builders": a_pool(provider="desk", **builders)}


ASKING = a_sim_world(requests=(a_request(),))


CASES = [*read_cases(Path(__file__).parent / "suggestions")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_last_request_has_the_suggestions_of_its_case(case: Case) -> None:
    world = world_of(case.world)
    demand = world.queues["debian"].demand
    assert isinstance(demand, Demand)

    found = steps(case.fleet, world, f"debian/{demand.requests[-1].id}")

    assert " ".join(" / ".join(found).split()) == case.decisions.replace("nothing", "")


def out_of_stock(number: int, minutes: int) -> Attempt:
    worker = f"debian-ci-builders-{number:04}"
    at = ago(minutes=minutes)
    return an_attempt(worker=worker, image="trixie", at=at, result="out-of-stock")


def test_suggestions_wait_or_permit_boot_of_failing_image() -> None:
    attempts = tuple(
        Attempt(
            pool="builders",
            worker=f"debian-ci-builders-{number:04}",
            type="ccx33",
            image="trixie",
            at=ago(minutes=20 * number),
            result="failed",
        )
        for number in (1, 2, 3)
    )
    fleet = a_sim_fleet(guards={"boot_failures": {"stop_after": 3, "of_last": 5}})

    found = steps(fleet, a_sim_world(requests=(a_request(),), attempts=attempts))

    assert found[-1] == "guards.boot_failures.stop_after: 3 -> 4"


def test_long_queue_is_replanned_less_often() -> None:
    many = a_sim_world(
        queues={"debian": a_reading(*(a_request(id=str(n)) for n in range(10_000)))}
    )

    fleet = a_sim_fleet()

    assert count_plans(planned(fleet, many)) < count_plans(planned(fleet, ASKING))


def test_suggested_edit_changes_only_its_key() -> None:
    fleet = a_sim_fleet(pools=pools(max=0))
    (remedy,) = remedies(fleet, ASKING)

    after = apply_edits(fleet, remedy.edits)

    assert after == a_sim_fleet(pools=pools(max=1))
    assert fleet.pools["builders"] != after.pools["builders"]


REFUSED = a_plan(
    signatures=(a_signature(requests=(KEY,)),),
    unserved=(an_unserved(requests=(KEY,), path=("guards", "refuse", "delete")),),
    guards=(
        a_guard_result(
            path=("guards", "refuse", "delete"),
            approve=(line_to_paste("delete", "builders", 3, NOW.date()),),
        ),
    ),
)


def considered(fleet: Fleet) -> list[str]:
    found = moves(Run(fleet, ASKING, REFUSED), KEY)
    return [describe_edits(fleet, each) for each in found]


def test_suggestion_approves_actions_of_a_refusing_guard() -> None:
    assert any("{guard: " in said for said in considered(a_sim_fleet()))


def explained(fleet: Fleet, world: World, key: str) -> Explanation:
    found = explain_request(fleet, world, planned(fleet, world), key)
    assert found is not None
    return found


def test_suggestions_have_one_wait_during_a_shortage() -> None:
    attempts = tuple(out_of_stock(number, minutes=1) for number in (2, 3))
    fleet = a_sim_fleet(cadence="1m")
    world = a_sim_world(
        a_worker(), requests=tuple(a_request(id=str(n)) for n in (1, 2)), attempts=attempts
    )

    found = explained(fleet, world, "debian/2")

    waits = [each.wait for each in found.suggestions if each.wait]
    assert [(wait.until, wait.assumed) for wait in waits] == [(None, found.assumed)]


def test_suggestions_of_a_request_need_at_most_ten_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def counted(fleet: Fleet, world: World) -> Plan:
        made.append(fleet)
        return reconcile_unsealed(fleet, world)

    many = {
        f"p{n}": a_pool(provider="desk", max=n % 3, budget={"per_hour": "0.20 EUR"})
        for n in range(8)
    }
    fleet = a_sim_fleet(pools=many, guards={"throttle": {"create": {"count": 2}}})
    world = a_sim_world(requests=tuple(a_request(id=str(n)) for n in range(30)), ledger=Ledger())
    plan = planned(fleet, world)
    monkeypatch.setattr("fleet.explain.search.reconcile_unsealed", counted)

    found = explain_request(fleet, world, plan, "debian/29")

    assert found is not None
    assert len(made) <= MOST_PLANS


def test_suggestions_are_empty_when_plan_limit_is_used_up() -> None:
    fleet = a_sim_fleet(pools=pools(max=0))
    replans = Replans(0)

    assert find_remedies(Run(fleet, ASKING, planned(fleet, ASKING)), KEY, replans) == ()
    assert replans.is_spent
