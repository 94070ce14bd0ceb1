"""Laws of pairs of a request and a pool: what is decided alone is what the plan decided."""

from hypothesis import given, settings

from fleet.guard import guard
from fleet.model.decisions import NoMachineReason
from fleet.model.facts import World
from fleet.model.plan import Signature, Unserved
from fleet.planner.fitting import FitDecider, asked_by
from fleet.reconcile import reconcile
from fleet.schema.model import Fleet
from tests.laws.strategies import worlds
from tests.laws.test_forecast_laws import limited_fleets
from tests.laws.test_unblock_laws import EXAMPLES, asking_worlds


@given(limited_fleets(), worlds() | asking_worlds())
@settings(max_examples=EXAMPLES)
def test_fit_of_a_pair_equals_decision_of_plan(fleet: Fleet, world: World) -> None:
    plan = guard(fleet, reconcile(fleet, world))
    decider = FitDecider(fleet, world)
    unserved = {each.signature: each for each in plan.unserved}

    for signature in plan.signatures:
        asked = asked_by(fleet, signature)
        fitting = [name for name in fleet.dynamic_pools if not decider.find_unfit(asked, name)]
        assert sorted(fitting) == sorted(signature.pools)
        for name in fleet.pools:
            _check(decider, signature, name, unserved.get(signature.id))


def _check(decider: FitDecider, signature: Signature, pool: str, waits: Unserved | None) -> None:
    """Check that a pool that the plan blocks is decided by the key and the figures of the plan."""
    decisions = decider.decide(signature, pool, waits, has_machines=True)
    blocked = [each for each in waits.blocked if each.pool == pool] if waits else []

    assert {each.subject for each in decisions} == {(pool,)}
    assert all(isinstance(each.code, NoMachineReason) for each in decisions) == bool(blocked)
    if blocked:
        recorded = {(each.path, each.needed, each.left, each.until) for each in blocked}
        found = {(d.key, d.figures.needed, d.figures.left, d.figures.until) for d in decisions}
        assert found == recorded
