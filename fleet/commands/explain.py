"""This module says why a request waits, why a pool wants N, why a worker stays."""

import argparse

from fleet.commands.wiring import Config, Decision, decide
from fleet.errors import FleetError
from fleet.explain import (
    ExplainedReason,
    Explanation,
    explain_pool,
    explain_request,
    explain_worker,
)
from fleet.ports import Console
from fleet.render.explain_text import explanation_to_text
from fleet.render.terminal import clean
from fleet.render.to_json import value_to_json


def run(args: argparse.Namespace, console: Console) -> int:
    """Print one explanation; exit 1 when nobody knows the name."""
    decision = decide(args, console)
    explanation = _explain(decision, args.kind, args.name)
    if explanation is None:
        raise FleetError(_unknown(decision, args.kind, args.name))
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


def _unknown(decision: Decision, kind: str, name: str) -> str:
    plan = decision.plan
    if kind == "request" and plan.unknown:
        return f"nobody knows whether {name} waits: {plan.unknown[0]}"
    also = " (it may run already, be done or be blocked)" if kind == "request" else ""
    waits = "waiting request" if kind == "request" else kind
    return f"no {waits} is called {name}{also}; known are: {_known(decision, kind)}"


def _with_places(decision: Decision, explanation: Explanation) -> Explanation:
    reasons = tuple(with_place(decision.config, reason) for reason in explanation.reasons)
    return explanation.model_copy(update={"reasons": reasons})


def with_place(config: Config, reason: ExplainedReason) -> ExplainedReason:
    """Return a reason with the line of fleet.yaml that decides it."""
    document = config.document
    written = document.value if isinstance(document.value, dict) else {}
    if not reason.path:
        return reason
    place = (
        document.place(reason.path)
        if reason.path[0] in written
        else f"{'.'.join(map(str, reason.path))} (a default: {document.name} does not say it)"
    )
    return reason.model_copy(update={"place": place})


def _known(decision: Decision, kind: str, most: int = 8) -> str:
    plan = decision.plan
    names = {
        "request": [key for signature in plan.signatures for key in signature.requests],
        "pool": [pool.pool for pool in plan.pools],
        "worker": [worker.worker for worker in plan.workers],
    }[kind]
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(map(clean, names[:most])) or "none") + more
