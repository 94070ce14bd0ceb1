"""This module says why a request waits, why a pool wants N, why a worker stays."""

import argparse

from fleet.commands.wiring import Decision, decide
from fleet.errors import FleetError
from fleet.explain import (
    Explanation,
    explain_pool,
    explain_request,
    explain_worker,
)
from fleet.ports import Console
from fleet.render.explain_text import explanation_to_text
from fleet.render.to_json import value_to_json


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one explanation; exit 1 when nobody knows the name."""
    decision = decide(args, console)
    explanation = _explain(decision, args.kind, args.name)
    if explanation is None:
        raise FleetError(
            f"no {args.kind} is called {args.name}; known are: {_known(decision, args.kind)}"
        )
    placed = _with_places(decision, explanation)
    console.out(
        value_to_json(placed) if args.json else explanation_to_text(placed, colour=console.colour)
    )
    return 0


def _explain(decision: Decision, kind: str, name: str) -> Explanation | None:
    if kind == "request":
        return explain_request(decision.config.fleet, decision.world, decision.plan, name)
    if kind == "pool":
        return explain_pool(decision.config.fleet, decision.plan, name)
    return explain_worker(decision.plan, name)


def _with_places(decision: Decision, explanation: Explanation) -> Explanation:
    reasons = tuple(
        reason.model_copy(update={"place": decision.config.document.place(reason.path)})
        if reason.path
        else reason
        for reason in explanation.reasons
    )
    return explanation.model_copy(update={"reasons": reasons})


def _known(decision: Decision, kind: str, most: int = 8) -> str:
    plan = decision.plan
    names = {
        "request": [key for signature in plan.signatures for key in signature.requests],
        "pool": [pool.pool for pool in plan.pools],
        "worker": [worker.worker for worker in plan.workers],
    }[kind]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more
