"""Explain one request of a plan, as `fleet explain request` does."""

from fleet.explain.case import Case
from fleet.explain.request import explain_one
from fleet.explain.values import Explanation
from fleet.explain.what_if import Replans, count_plans
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.schema.model import Fleet


def explain_request(fleet: Fleet, world: World, plan: Plan, name: str) -> Explanation | None:
    """Return the explanation of a request; None if no single request has the name."""
    case = Case(fleet, world, plan)
    keys = case.named(name)
    if len(keys) != 1:
        return None
    signature = next(s for s in plan.signatures if keys[0] in s.requests)
    return explain_one(case, signature, keys[0], Replans(count_plans(plan)))
