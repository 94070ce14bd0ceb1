"""What approvals let pass, one sentence per test."""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from fleet.guard import guard
from fleet.guard.approvals import approval_digest
from fleet.model.facts import Unknown, World
from fleet.model.plan import Plan
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.builders import NOW, a_pool, a_sim_fleet, a_sim_world, a_worker
from tests.builders.cases import Block, read_blocks
from tests.builders.sentences import tells

TODAY = NOW.date()


def an_approval(**overrides: object) -> dict[str, object]:
    defaults = {"guard": "delete", "pool": "old", "count": 18, "reason": "move to ccx63"}
    return defaults | {"expires": TODAY.isoformat()} | overrides


def a_fleet_without_old(*approvals: dict[str, object], **overrides: object) -> Fleet:
    pools = {"builders": a_pool(provider="desk")}
    return a_sim_fleet(**({"pools": pools, "approvals": list(approvals)} | overrides))


def old_pool(idle: int, busy: int = 0, draining: int = 0, **overrides: object) -> World:
    workers = [
        a_worker(
            name=f"debian-ci-old-{n:04}",
            pool="old",
            busy=n < busy,
            draining=busy <= n < busy + draining,
        )
        for n in range(idle + busy + draining)
    ]
    return a_sim_world(*workers).altered(**overrides)


def planned(fleet: Fleet, world: World) -> Plan:
    return guard(fleet, reconcile(fleet, world))


def used(fleet: Fleet, *counts: int) -> dict[str, int]:
    digests = [approval_digest(each) for each in fleet.approvals]
    return dict(zip(digests, counts, strict=True))


CASES = [*read_blocks(Path(__file__).parent / "approvals")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_approvals_permit_the_removals_of_their_case(case: Block) -> None:
    plan = plan_of(*case.parts)

    assert describe(plan) == case.result
    for about, words in case.because:
        said = plan.guards[0].because if about == "guard" else plan.warnings[0].message
        assert tells(said, *words.split())


def plan_of(approvals: str, workers: str) -> Plan:
    """Return the guarded plan without pool `old`, of which these workers are left."""
    given, counts = [], {}
    for number, (count, *said) in enumerate(each.split() for each in approvals.split(",")):
        keys: dict[str, object] = dict(word.partition("=")[::2] for word in said)
        counts[number] = str(keys.pop("used", "0"))
        ends = TODAY + timedelta(days=int(str(keys.pop("expires", "0"))))
        given.append(an_approval(count=int(count), expires=ends.isoformat(), **keys))
    fleet = a_fleet_without_old(*given)
    there = {kind: int(n) for n, kind in (each.split() for each in workers.split(",") if each)}
    world = old_pool(there.get("idle", 0), there.get("busy", 0), there.get("draining", 0))
    if "unknown" in counts.values():
        return planned(fleet, world.altered(approved=Unknown(unknown="no answer")))
    digests = [approval_digest(each) for each in fleet.approvals]
    used = {digest: int(count) for digest, count in zip(digests, counts.values(), strict=True)}
    return planned(fleet, world.altered(approved=used))


def describe(plan: Plan) -> str:
    """Return the actions, the withheld ones, and how many each approval lets pass."""
    actions = Counter(each.action for each in plan.actions)
    passes = [str(len(each.passes)) for each in plan.approvals]
    named = {name for each in plan.approvals for name in each.passes}
    assert named == {each.worker for each in plan.actions if each.action == "drain"}
    parts = [f"{action} {count}" for action, count in actions.items()]
    parts += [f"withheld {len(plan.withheld)}"] if plan.withheld else []
    parts += [f"passed by {' '.join(passes)}", *(f"{g.guard} {g.result}" for g in plan.guards)]
    return ", ".join((*parts, *(each.rule for each in plan.warnings)))


def test_edited_approval_is_a_new_one() -> None:
    fleet = a_fleet_without_old(an_approval(count=4))
    edited = a_fleet_without_old(an_approval(count=5))

    plan = planned(edited, old_pool(idle=4, approved=used(fleet, 4)))

    assert not plan.is_refused


def test_approval_of_cost_guard_is_counted_in_machines() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", min=5, max=5)},
        guards={"refuse": {"cost_increase": "0.1 EUR/h"}},
        approvals=[an_approval(guard="cost_increase", pool="builders", count=3)],
    )

    plan = planned(fleet, a_sim_world())

    assert (len(plan.actions), len(plan.withheld), plan.is_refused) == (3, 2, True)
    assert len(plan.approvals[0].passes) == 3


def test_action_withheld_by_other_guard_uses_no_approval() -> None:
    fleet = a_sim_fleet(
        pools={"builders": a_pool(provider="desk", min=5, max=5)},
        guards={"refuse": {"cost_increase": "0.1 EUR/h"}, "throttle": {"create": {"count": 2}}},
        approvals=[an_approval(guard="cost_increase", pool="builders", count=5)],
    )

    plan = planned(fleet, a_sim_world())

    assert len(plan.actions) == 2
    assert plan.approvals[0].passes == tuple(action.worker for action in plan.actions)
