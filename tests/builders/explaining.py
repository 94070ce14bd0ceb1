"""Explain requests of a plan."""

from fleet.explain.case import Case
from fleet.explain.request import (
    WaitingExplanations,
    WaitingGroup,
    WaitingRequest,
    explain_requests,
)
from fleet.explain.search import Replans
from fleet.explain.values import (
    AwaitedEvent,
    ExplainedReason,
    Explanation,
    KeyChange,
    Suggestion,
)
from fleet.model.facts import World
from fleet.model.plan import Plan
from fleet.planner.step import step
from fleet.schema.model import Fleet
from tests.builders import ago

LONG_NAME = "a-name-without-a-place-to-break-it-" * 6


def explain_request(fleet: Fleet, world: World, plan: Plan, name: str) -> Explanation | None:
    """Return the explanation of a request; None if no single request has the name."""
    case = Case(fleet, world, plan)
    keys = case.named(name)
    if len(keys) != 1:
        return None
    return next(explain_requests(case, keys))


def is_served(plan: Plan, key: str) -> bool:
    """Return whether a plan assigns an existing or new worker to a request."""
    return any(key in s.by_worker or key in s.by_create for s in plan.signatures)


def awaited(run: Case, wait: AwaitedEvent, replans: Replans) -> World | None:
    """Return the expected world after a wait; None if no trial plan is left."""
    later: Case | None = run
    for _ in range(wait.runs):
        later = replans.run_after(later) if later else None
    if later is None or wait.runs:
        return later.world if later else None
    found = run.assumed if wait.assumed else run.forecast
    return step(
        run.fleet, run.world, run.plan, wait.assumed or wait.until or run.world.time, found
    )


def some_waits(plan: Plan) -> WaitingExplanations:
    """Return the waits of a plan, each group explained by its first request."""
    because = {each.signature: each.because for each in plan.unserved}
    groups = tuple(
        WaitingGroup(
            signature,
            because.get(signature.id, "get new machines"),
            signature.id not in because,
            3600,
            tuple(
                WaitingRequest(key, ago(hours=n + 1), ago(hours=-n))
                for n, key in enumerate(signature.requests)
            ),
        )
        for signature in plan.signatures
    )
    return WaitingExplanations(
        groups, {g.requests[0].key: _answer(g.requests[0].key) for g in groups}
    )


def _answer(key: str) -> Explanation:
    path = ("pools", "builders", "workers", "max")
    change = KeyChange(path=path, old="4", new="5", yaml="pools: {builders: {workers: {max: 5}}}")
    return Explanation(
        kind="request",
        name=key,
        headline=f"request {key} waits: pool builders is at workers.max (4)",
        path=path,
        facts=(f"requires {LONG_NAME}",),
        reasons=(ExplainedReason(because=f"pool {LONG_NAME} fits", path=path, by="capacity"),),
        next_steps=("wait",),
        suggestions=(Suggestion(sentence="raise it", changes=(change,)),),
    )
